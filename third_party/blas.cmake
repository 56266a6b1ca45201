# third_party_blas: OpenBLAS where it is found (TRENCADIS_HAVE_OPENBLAS), else nothing, and gemm() uses Eigen.
#
# The serial build is preferred: our own threads call it, one product each. The OpenMP build works too, limited to one
# thread. Debian lets both stand side by side under one soname, so the chosen folder is written into the run path.
add_library(third_party_blas INTERFACE)
find_path(OPENBLAS_INCLUDE cblas.h PATH_SUFFIXES openblas-serial openblas-openmp openblas
          HINTS /usr/include/${CMAKE_LIBRARY_ARCHITECTURE})
find_library(OPENBLAS_LIBRARY openblas PATH_SUFFIXES ${CMAKE_LIBRARY_ARCHITECTURE}/openblas-serial openblas-serial
             ${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp openblas-openmp)
if(OPENBLAS_INCLUDE AND OPENBLAS_LIBRARY)
  get_filename_component(folder ${OPENBLAS_LIBRARY} DIRECTORY)
  target_include_directories(third_party_blas SYSTEM INTERFACE ${OPENBLAS_INCLUDE})
  target_link_libraries(third_party_blas INTERFACE ${OPENBLAS_LIBRARY})
  target_link_options(third_party_blas INTERFACE LINKER:-rpath,${folder})
  target_compile_definitions(third_party_blas INTERFACE TRENCADIS_HAVE_OPENBLAS)
  message(STATUS "Matrix products: OpenBLAS (${OPENBLAS_LIBRARY})")
else()
  message(STATUS "Matrix products: Eigen (install libopenblas-serial-dev for more speed)")
endif()
