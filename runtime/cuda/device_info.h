// Which GPUs there are.
#pragma once

#include <string>

namespace trencadis {

int cuda_device_count();  // 0 also where there is no driver
std::string cuda_device_name(int device);

}  // namespace trencadis
