// CUDA's language for a compiler that knows only C++: the keywords and built-in names that nvcc has without an include.
//
// The build includes this file into every .cu source (-include), so that the source itself names nothing of the
// simulator. It must come before NVIDIA's own headers, two names of which it keeps out. Types (dim3, float4,
// cudaLaunchConfig_t, __nv_bfloat16 with its rounding) are NVIDIA's.
//
// The functions are in three files: synchronisation and shuffles in device_sync.h, atomics in device_atomics.h,
// arithmetic in device_math.h. What is not there does not compile, rather than doing something else.
#pragma once

// NVIDIA declares threadIdx and the like as constants, and its cudaLaunchKernelEx calls the driver.
#define __DEVICE_LAUNCH_PARAMETERS_H__
#define cudaLaunchKernelEx cudaLaunchKernelEx_of_nvidia
#include <cuda_runtime.h>
#undef cudaLaunchKernelEx

// A kernel is a plain function. Its shared variables are static: SharedArray finds the block's memory by its address.
#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __launch_bounds__
#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __constant__ static const
// The promised size of the block is written in front of the kernel's code: one byte of "no operation" for each warp.
// launch_bound() counts them there (launch_bounds.cpp).
#if defined(__GNUC__) && !defined(__clang__)
#define __launch_bounds__(threads, ...) \
  __attribute__((patchable_function_entry(((threads) + 31) / 32, ((threads) + 31) / 32)))
#else
#define __launch_bounds__(...)
#endif

// Of the running thread. The engine sets them whenever it switches to another one.
extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;
inline constexpr int warpSize = 32;

#include "runtime/cudasim/device_atomics.h"
#include "runtime/cudasim/device_math.h"
#include "runtime/cudasim/device_sync.h"
#include "runtime/cudasim/launch.h"
