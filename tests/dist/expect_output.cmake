# cmake -DPROGRAM=... -DEXPECTED=... -P expect_output.cmake: fails unless the program prints exactly that file.
execute_process(COMMAND ${PROGRAM} OUTPUT_VARIABLE output RESULT_VARIABLE result)
file(READ ${EXPECTED} expected)
if(NOT result EQUAL 0 OR NOT output STREQUAL expected)
  message(FATAL_ERROR "${PROGRAM} (result ${result}) printed\n${output}\ninstead of ${EXPECTED}:\n${expected}")
endif()
