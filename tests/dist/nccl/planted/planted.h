// Planted bugs in the use of NCCL and of streams around it: which one is on, and the program that has it.
#pragma once

namespace trencadis::planted {

bool planted(const char* name);  // main.cpp
int train();                     // step.cpp: 0 right numbers, 1 wrong ones; throws Error
int start_after_broadcast();     // start.cpp: the same

}  // namespace trencadis::planted
