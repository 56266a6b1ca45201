// Profile: where the time of a run goes, kernel by kernel: calls, seconds, arithmetic and bytes.
//
// A backend is wrapped, so that each of its kernels is timed; nothing else knows of it. Only for backends whose compute
// stream runs inline (the CPU's): a GPU's kernels have hardly begun when their call returns, and NVIDIA's Nsight Systems
// is the tool for them. Kernels of other streams (reductions on a communication stream) are not in it: they run beside.
//
// Arithmetic counts multiplications and additions of the products, and of nothing else; a causal attention counts the half that is
// needed. Bytes are those of arguments that a kernel must read or write once: what memory traffic would be without any
// waste, so that GB/s near the memory's says that a kernel is as fast as it can be.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/context.h"

namespace trencadis {

class Profile {
 public:
  struct Row {
    std::string kernel;
    int64_t calls = 0;
    double seconds = 0, flops = 0, bytes = 0;
  };

  void add(const char* kernel, double seconds, double flops, double bytes);
  void clear() { rows_.clear(); }
  std::vector<Row> rows() const;  // the longest time first

 private:
  std::vector<Row> rows_;  // few
};

// The backend, with each kernel of its compute stream timed into `profile`, which outlives it.
std::unique_ptr<Backend> make_profiling_backend(std::unique_ptr<Backend> backend, Profile& profile);

}  // namespace trencadis
