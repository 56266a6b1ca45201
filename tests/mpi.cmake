# trencadis_mpi_test(name target np args...): a ctest entry that runs `target args...` under mpirun on np ranks.
#
# More ranks than cores are allowed, and root, because containers and CI machines have few cores and run as root. It
# counts as four processors: ranks poll while they wait, so that two jobs would take each other's cores.
function(trencadis_mpi_test name target np)
  add_test(NAME ${name} COMMAND ${MPIEXEC_EXECUTABLE} --oversubscribe --allow-run-as-root ${MPIEXEC_NUMPROC_FLAG} ${np}
                                $<TARGET_FILE:${target}> ${ARGN})
  # A folder of its own for each job: they would race for Open MPI's in /tmp (models/train_gpt_case.py).
  set(environment OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
                  OMPI_MCA_orte_tmpdir_base=${CMAKE_BINARY_DIR}/mpi/${name})
  set_tests_properties(${name} PROPERTIES ENVIRONMENT "${environment}"
                                          PROCESSORS 4 TIMEOUT 120 LABELS mpi)
endfunction()
