# The planted bugs of streams: one ctest entry a name of the table in planted_streams.cpp.
add_executable(planted_streams runtime/cudasim/planted/planted_streams.cpp)
target_link_libraries(planted_streams PRIVATE trencadis_flags runtime_cuda_sim runtime_cudasim)
add_dependencies(unit_tests planted_streams)
add_dependencies(thread_tests planted_streams)
foreach(name none gather_too_early compute_before_gather reduce_too_early event_recorded_early step_before_reduce
        released_before_gathered pinned_reused_early result_not_waited_for host_reads_device host_function_reads_device
        host_function_calls_cuda collectives_swapped collective_skipped)
  add_test(NAME planted_streams_${name} COMMAND planted_streams ${name})
  set_tests_properties(planted_streams_${name} PROPERTIES LABELS "unit;quick;threads" TIMEOUT 120)
endforeach()
