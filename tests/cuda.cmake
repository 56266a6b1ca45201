# Tests of runtime/cudasim and runtime/cuda. The tests of the CUDA backend (runtime/cuda/*.cpp) are built twice, as the
# backend is: test_runtime_cuda_sim runs everywhere, test_runtime_cuda on a machine with a GPU (elsewhere it is built and
# linked, and reports that it was skipped).
trencadis_test(runtime/cudasim LINK runtime_cuda_sim runtime_cudasim)
add_subdirectory(runtime/cudasim/planted)
add_subdirectory(runtime/cudasim/planted_streams)

file(GLOB sources CONFIGURE_DEPENDS runtime/cuda/*.cpp)
if(sources)
  add_executable(test_runtime_cuda_sim ${sources} $<TARGET_OBJECTS:test_main>)
  target_link_libraries(test_runtime_cuda_sim PRIVATE trencadis_flags doctest::doctest runtime_cpu runtime_cuda_sim)
  target_include_directories(test_runtime_cuda_sim PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  add_dependencies(unit_tests test_runtime_cuda_sim)
  add_dependencies(thread_tests test_runtime_cuda_sim)
  # In every order of threads and blocks, each with another schedule of the streams; a sanitizer's build needs but one, for
  # it does not wait for bad luck.
  set(runs forward+lazy)
  if(NOT TRENCADIS_SANITIZE)
    set(runs forward+lazy reverse+late seed:1+eager seed:2+seed:2)
  endif()
  foreach(run ${runs})
    string(REGEX REPLACE "[:+]" "_" suffix ${run})
    string(REPLACE "+" ";TRENCADIS_SIM_SCHEDULE=" order_and_schedule ${run})
    add_test(NAME runtime_cuda_sim_${suffix} COMMAND test_runtime_cuda_sim)
    set_tests_properties(runtime_cuda_sim_${suffix} PROPERTIES
      LABELS "unit;quick;threads" ENVIRONMENT "TRENCADIS_SIM_ORDER=${order_and_schedule}" TIMEOUT 600)
  endforeach()

  if(TRENCADIS_NVCC)
    add_executable(test_runtime_cuda ${sources} cuda_main.cpp)
    target_link_libraries(test_runtime_cuda PRIVATE trencadis_flags doctest::doctest runtime_cpu runtime_cuda)
    target_include_directories(test_runtime_cuda PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
    set_target_properties(test_runtime_cuda PROPERTIES LINKER_LANGUAGE CXX)
    add_dependencies(unit_tests test_runtime_cuda)
    add_test(NAME runtime_cuda COMMAND test_runtime_cuda)
    set_tests_properties(runtime_cuda PROPERTIES LABELS "unit;quick;gpu" SKIP_RETURN_CODE 77 TIMEOUT 600)
  endif()
endif()

# What a compiler can prove about the kernels without a GPU, and the program that times the kernel ladders where there is
# one (tests/bench/cuda_ladder.py).
find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME check_cuda_ladder_table_self_test
         COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/bench/cuda_ladder.py --self-test)
set_tests_properties(check_cuda_ladder_table_self_test PROPERTIES LABELS "check;quick")
if(TRENCADIS_NVCC)
  set(budget Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/runtime/cuda/ptxas_budget.py --nvcc ${TRENCADIS_NVCC})
  add_test(NAME check_ptxas_budget_self_test COMMAND ${budget} --self-test)
  # The build itself notes what ptxas says of its kernels: nvcc takes as long for them as g++ for a third of everything.
  target_compile_options(runtime_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=-v;--no-compress>)
  set_target_properties(runtime_cuda PROPERTIES CUDA_COMPILER_LAUNCHER
    "${Python3_EXECUTABLE};${CMAKE_CURRENT_SOURCE_DIR}/runtime/cuda/ptxas_budget.py;--record;${CMAKE_CUDA_COMPILER_LAUNCHER}")
  set(built ${CMAKE_BINARY_DIR}/runtime/cuda/CMakeFiles/runtime_cuda.dir)
  add_test(NAME check_ptxas_budget
           COMMAND ${budget} ${CMAKE_SOURCE_DIR} --built ${built} --cache ${CMAKE_BINARY_DIR}/ptxas_budget -- -DFMT_USE_CONSTEXPR=1
                   "-I$<JOIN:$<TARGET_PROPERTY:fmt::fmt,INTERFACE_INCLUDE_DIRECTORIES>,;-I>"
           COMMAND_EXPAND_LISTS)
  set_tests_properties(check_ptxas_budget check_ptxas_budget_self_test PROPERTIES
    LABELS check SKIP_RETURN_CODE 77 TIMEOUT 900)
  set_tests_properties(check_ptxas_budget PROPERTIES PROCESSORS 2)

  add_executable(cuda_ladder bench/cuda_ladder.cpp)
  target_link_libraries(cuda_ladder PRIVATE trencadis_flags runtime_cuda)
  set_target_properties(cuda_ladder PROPERTIES LINKER_LANGUAGE CXX)
endif()

# The chapter's example; and the debugger's transcript in it, replayed on a build of it without optimisation.
trencadis_example(runtime/cudasim/example_sum.cu LINK runtime_cudasim)
if(NOT TRENCADIS_SANITIZE)
  add_executable(example_sum_for_gdb ${CMAKE_SOURCE_DIR}/runtime/cudasim/example_sum.cu)
  target_link_libraries(example_sum_for_gdb PRIVATE trencadis_flags runtime_cudasim)
  target_compile_options(example_sum_for_gdb PRIVATE -O0 -g)
  set_target_properties(example_sum_for_gdb PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
  add_dependencies(unit_tests example_sum_for_gdb)
  add_test(NAME stepping_in_gdb COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/runtime/cudasim/replay_gdb.py
                                        $<TARGET_FILE:example_sum_for_gdb>
                                        ${CMAKE_SOURCE_DIR}/runtime/cudasim/stepping.expected)
  set_tests_properties(stepping_in_gdb PROPERTIES LABELS "unit;quick" SKIP_RETURN_CODE 77 TIMEOUT 120)
endif()

# Not a test of speed: shared machines vary. It runs, and a reader can run it for longer.
trencadis_sources_for_simulator(runtime/cudasim/speed/speed.cu)
add_executable(cudasim_speed runtime/cudasim/speed/speed.cu)
target_link_libraries(cudasim_speed PRIVATE trencadis_flags runtime_cudasim)
add_dependencies(unit_tests cudasim_speed)
add_test(NAME cudasim_speed_runs COMMAND cudasim_speed 0.01)
set_tests_properties(cudasim_speed_runs PROPERTIES LABELS "unit;quick")
