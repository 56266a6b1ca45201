// --profile: where the time of a step went, as a table for people.
#pragma once

#include <string>

#include "runtime/profile.h"

namespace trencadis {

// steps: how many the profile has seen; seconds: how long they took in all. What no kernel accounts for is the last row:
// waiting for other ranks, data, reports.
std::string profile_table(const Profile& profile, int64_t steps, double seconds);

}  // namespace trencadis
