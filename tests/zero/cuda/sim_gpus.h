// Simulated GPUs, one a rank, as what the runs of tests/zero/training.h compute on: NCCL is their communicator.
#pragma once

#include <string>
#include <vector>

#include "../training.h"

namespace trencadis::test {

std::shared_ptr<Devices> sim_gpus();

// Under which schedules of the simulator's streams a test runs: eager, lazy, late, and seeded ones.
std::vector<std::string> schedules();

// From here to the end of the scope.
class WithSchedule {
 public:
  explicit WithSchedule(const std::string& name);
  ~WithSchedule();
  WithSchedule(const WithSchedule&) = delete;
  WithSchedule& operator=(const WithSchedule&) = delete;

 private:
  const std::string before_;
};

}  // namespace trencadis::test
