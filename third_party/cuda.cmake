# NVIDIA's headers and compiler, both optional.
#
# TRENCADIS_CUDA_HEADERS: whether there are headers; then the target cuda_headers has them, and runtime/cudasim and the
# CUDA sources are built for the CPU. They come from a CUDA toolkit, else from NVIDIA's packages on PyPI.
# TRENCADIS_NVCC: nvcc, or empty; with it the same sources are built for GPUs too, except where a sanitizer is on.
option(TRENCADIS_CUDA "Build the CUDA kernels: for the simulator, and with nvcc where it is found" ON)
option(TRENCADIS_FETCH_CUDA_HEADERS "Without a CUDA toolkit, fetch NVIDIA's headers from PyPI (about 550 MB pass by)" ON)

set(TRENCADIS_CUDA_HEADERS OFF)
set(TRENCADIS_NVCC "")
set(why "TRENCADIS_FETCH_CUDA_HEADERS is off")
if(TRENCADIS_CUDA)
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND AND EXISTS ${CUDAToolkit_INCLUDE_DIRS}/cublas_v2.h)
    set(headers ${CUDAToolkit_INCLUDE_DIRS})
    set(origin "CUDA toolkit ${CUDAToolkit_VERSION}")
  elseif(TRENCADIS_FETCH_CUDA_HEADERS)
    find_package(Python3 REQUIRED COMPONENTS Interpreter)
    set(fetched ${CMAKE_BINARY_DIR}/cuda_headers)
    execute_process(COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/cuda_headers.py ${fetched}
                    RESULT_VARIABLE failed ERROR_VARIABLE why ERROR_STRIP_TRAILING_WHITESPACE)
    if(NOT failed)
      set(headers ${fetched}/include)
      set(origin "NVIDIA's headers from PyPI")
    endif()
  endif()
endif()

if(headers)
  set(TRENCADIS_CUDA_HEADERS ON)
  add_library(cuda_headers INTERFACE)
  target_include_directories(cuda_headers SYSTEM INTERFACE ${headers})
  if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE AND NOT TRENCADIS_SANITIZE)
    set(TRENCADIS_NVCC ${CUDAToolkit_NVCC_EXECUTABLE})
  endif()
  if(TRENCADIS_NVCC)
    message(STATUS "CUDA: ${origin}; kernels for the simulator and, by nvcc, for GPUs")
  else()
    message(STATUS "CUDA: ${origin}; kernels for the simulator only")
  endif()
elseif(TRENCADIS_CUDA)
  message(STATUS "CUDA: left out are runtime/cuda and runtime/cudasim, for want of NVIDIA's headers: install a CUDA 13 "
                 "toolkit, or let pip reach PyPI (${why})")
else()
  message(STATUS "CUDA: left out are runtime/cuda and runtime/cudasim (TRENCADIS_CUDA is off)")
endif()
set(TRENCADIS_CUDA_HEADERS ${TRENCADIS_CUDA_HEADERS} PARENT_SCOPE)
set(TRENCADIS_NVCC "${TRENCADIS_NVCC}" PARENT_SCOPE)
