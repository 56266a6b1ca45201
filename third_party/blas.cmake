# third_party_blas: OpenBLAS where it is found, else nothing; TRENCADIS_OTHER_GEMM names the gemm file that is then not
# compiled.
#
# A build with threads (OpenMP) is wanted although each caller wants one thread's work: the serial build does not lock
# its table of buffers, so gemm() must let products take turns there. Debian lets the builds stand side by side under one
# soname, so the chosen folder is written into the run path.
add_library(third_party_blas INTERFACE)
set(suffixes openblas-openmp openblas-pthread openblas openblas-serial)
find_path(OPENBLAS_INCLUDE cblas.h PATH_SUFFIXES ${suffixes} HINTS /usr/include/${CMAKE_LIBRARY_ARCHITECTURE})
list(TRANSFORM suffixes PREPEND ${CMAKE_LIBRARY_ARCHITECTURE}/ OUTPUT_VARIABLE debian_suffixes)
find_library(OPENBLAS_LIBRARY openblas PATH_SUFFIXES ${debian_suffixes} ${suffixes})
if(OPENBLAS_INCLUDE AND OPENBLAS_LIBRARY)
  get_filename_component(folder ${OPENBLAS_LIBRARY} DIRECTORY)
  target_include_directories(third_party_blas SYSTEM INTERFACE ${OPENBLAS_INCLUDE})
  target_link_libraries(third_party_blas INTERFACE ${OPENBLAS_LIBRARY})
  target_link_options(third_party_blas INTERFACE LINKER:-rpath,${folder})
  set(TRENCADIS_OTHER_GEMM gemm_eigen.cpp PARENT_SCOPE)
  message(STATUS "gemm(), for the simulator and tests: OpenBLAS (${OPENBLAS_LIBRARY})")
else()
  set(TRENCADIS_OTHER_GEMM gemm_openblas.cpp PARENT_SCOPE)
  message(STATUS "gemm(), for the simulator and tests: Eigen (install libopenblas-openmp-dev for more speed)")
endif()
