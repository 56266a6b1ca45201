# The programs that tests/gpu.sh runs on a machine with a GPU, beside test_runtime_cuda and cuda_ladder, and the target
# gpu_programs that builds all of them. Without a GPU each of them exits with 77.
#
# train_step is built for the simulator too: that its step on the CUDA backend equals the CPU's is proved everywhere.
add_executable(gpu_train_step_sim gpu/train_step.cpp)
target_link_libraries(gpu_train_step_sim PRIVATE trencadis_flags runtime_cuda_sim runtime_cpu zero dist_local models_gpt)
add_dependencies(unit_tests gpu_train_step_sim)
add_test(NAME gpu_train_step_sim COMMAND gpu_train_step_sim --tiny)
set_tests_properties(gpu_train_step_sim PROPERTIES LABELS unit TIMEOUT 120)

if(TRENCADIS_NVCC)
  set(programs test_runtime_cuda cuda_ladder gpu_train_step)
  add_executable(gpu_train_step gpu/train_step.cpp)
  target_link_libraries(gpu_train_step PRIVATE trencadis_flags runtime_cuda runtime_cpu zero dist_local models_gpt)

  find_library(TRENCADIS_NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
  find_path(NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  if(TRENCADIS_NCCL_LIBRARY AND NCCL_INCLUDE)
    add_executable(test_gpu_nccl gpu/nccl.cpp cuda_main.cpp)
    target_link_libraries(test_gpu_nccl PRIVATE trencadis_flags doctest::doctest cuda_headers CUDA::cudart_static
                                                ${TRENCADIS_NCCL_LIBRARY} runtime)
    target_include_directories(test_gpu_nccl SYSTEM PRIVATE ${NCCL_INCLUDE})
    list(APPEND programs test_gpu_nccl)
  endif()
  set_target_properties(${programs} PROPERTIES LINKER_LANGUAGE CXX)
  add_custom_target(gpu_programs DEPENDS ${programs})

  # All of gpu.sh but what needs the device: the programs built above, each of which must say that it has no GPU.
  add_test(NAME check_gpu_rehearsal
           COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/gpu.sh --rehearse --built ${CMAKE_BINARY_DIR}
                   --out ${CMAKE_BINARY_DIR}/gpu_rehearsal)
  set_tests_properties(check_gpu_rehearsal PROPERTIES LABELS check SKIP_RETURN_CODE 77 TIMEOUT 120)
endif()
add_test(NAME check_gpu_self_test COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/gpu/run.py --self-test)
set_tests_properties(check_gpu_self_test PROPERTIES LABELS "check;quick")
