# The same CUDA sources, built twice: by the C++ compiler against runtime/cudasim, and by nvcc (runtime/cuda/CMakeLists.txt)
# against NVIDIA's libraries. Which one a program gets is the library that it links: NAME_sim or NAME.

if(TRENCADIS_NVCC)
  set(CMAKE_CUDA_COMPILER ${TRENCADIS_NVCC})
  # Machine code for sm_80 and sm_90; newer GPUs translate the latter's PTX.
  set(TRENCADIS_CUDA_ARCHITECTURES 80-real 90 CACHE STRING "What nvcc compiles for, as CMAKE_CUDA_ARCHITECTURES")
  set(CMAKE_CUDA_ARCHITECTURES ${TRENCADIS_CUDA_ARCHITECTURES})
  if(CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
  endif()
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # nvcc has it since CUDA 12.0; CMake says so only since 3.26
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  find_package(CUDAToolkit REQUIRED)
  # Of every library that nvcc compiles. fmt 9 believes that nvcc has no constexpr; its consteval does not compile then.
  set(TRENCADIS_NVCC_OPTIONS
      $<$<COMPILE_LANGUAGE:CUDA>:-DFMT_USE_CONSTEXPR=1;-Werror=all-warnings;-Xcompiler=-Wall,-Wextra;-lineinfo>)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
endif()

# Sources of the simulator. ThreadSanitizer must see what kernels do, not what the simulator does on their stacks: the
# simulator is compiled without it and tells it by calls. Loops of its must not become calls of memset and memcpy, which
# ThreadSanitizer sees wherever they are called from.
function(trencadis_simulator_sources folder)
  if(TRENCADIS_SANITIZE MATCHES thread)
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.cpp)
    set_source_files_properties(${sources} PROPERTIES
      COMPILE_OPTIONS "-fno-sanitize=thread;-fno-tree-loop-distribute-patterns" COMPILE_DEFINITIONS TRENCADIS_SIM_TSAN
      SKIP_PRECOMPILE_HEADERS ON)
  endif()
endfunction()

# CUDA sources (.cu) of a target of this directory, for the C++ compiler. Kernels read floats as float4 and bf16 as
# uint32_t, which nvcc allows.
function(trencadis_sources_for_simulator)
  set_source_files_properties(${ARGN} PROPERTIES
    LANGUAGE CXX
    SKIP_PRECOMPILE_HEADERS ON
    COMPILE_OPTIONS "-xc++;-include;runtime/cudasim/cuda_language.h;-fno-strict-aliasing;-Wno-unknown-pragmas"
    INCLUDE_DIRECTORIES ${CMAKE_SOURCE_DIR}/runtime/cudasim)
endfunction()

# trencadis_library_for_simulator(folder [WITH sources...] LINK ...): the library folder_sim of the folder's .cu and .cpp.
function(trencadis_library_for_simulator folder)
  cmake_parse_arguments(ARG "" "" "WITH;LINK" ${ARGN})
  string(REPLACE "/" "_" name ${folder})
  file(GLOB kernels CONFIGURE_DEPENDS ${folder}/*.cu ${folder}/ladder/*.cu)
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/example_")
  if(kernels OR sources)
    trencadis_sources_for_simulator(${kernels})
    add_library(${name}_sim STATIC ${kernels} ${sources} ${ARG_WITH})
    target_link_libraries(${name}_sim PUBLIC trencadis_flags ${ARG_LINK})
  else()
    add_library(${name}_sim INTERFACE)
    target_link_libraries(${name}_sim INTERFACE trencadis_flags ${ARG_LINK})
  endif()
endfunction()
