# What `cmake --install` puts where, for those who build programs of their own (tests/install/README.md):
#
#   include/trencadis/               headers, laid out like the folders: #include "zero/engine.h"
#   lib/trencadis/<build type>/      libraries; a Debug and a Release build may share one prefix
#   lib/cmake/Trencadis/             for find_package(Trencadis CONFIG): targets Trencadis::zero, ... and what they were
#                                    built as, so that debug and release do not mix unseen (TrencadisConfig.cmake.in)
#   bin/                             programs, and libtrencadis_gpu.so, which they look for beside them
#   share/doc/trencadis/             licence
#
# Nothing in the prefix knows where it stands: it may be moved. What users do not link (simulator, trainer, tests) stays
# out; a library that was not built (dist/mpi, dist/nccl) is left out, and with it what it needs from elsewhere.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
include(${CMAKE_CURRENT_LIST_DIR}/build_traits.cmake)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Trencadis)
set(folders runtime runtime/cpu runtime/cuda autograd autograd/ops layers optim dist dist/local dist/thread dist/mpi
            dist/nccl zero zero/checkpoint models/gpt)

set(installed trencadis_flags)
foreach(folder ${folders})
  string(REPLACE "/" "_" library ${folder})
  if(NOT TARGET ${library})
    continue()
  endif()
  list(APPEND installed ${library})
  file(GLOB headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.h)
  install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/trencadis/${folder})
endforeach()
install(FILES ${CMAKE_SOURCE_DIR}/models/language_model.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/trencadis/models)
foreach(library cuda_headers third_party_cudnn)  # of which runtime_cuda is made; they have no files of their own
  if(TARGET runtime_cuda AND TARGET ${library})
    list(APPEND installed ${library})
  endif()
endforeach()
set_target_properties(trencadis_flags PROPERTIES EXPORT_NAME flags)
install(TARGETS ${installed} EXPORT Trencadis ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/trencadis/$<CONFIG>)
install(EXPORT Trencadis NAMESPACE Trencadis:: DESTINATION ${package} FILE TrencadisTargets.cmake)

# Programs are those of the last build that was installed, but for one that is for a debugger or a sanitizer.
set(programs)
foreach(program trencadis trencadis_cudasim trencadis_gpu)
  if(TARGET ${program})
    list(APPEND programs ${program})
    set_target_properties(${program} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)  # to CUDA, MPI, where they are not in a usual place
  endif()
endforeach()
if(programs AND NOT CMAKE_BUILD_TYPE MATCHES "Debug|Sanitize")
  install(TARGETS ${programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_BINDIR})
  foreach(other_name train_gpt train_gpt_cudasim)
    string(REPLACE train_gpt trencadis program ${other_name})
    if(TARGET ${program})
      install(FILES ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/${other_name} DESTINATION ${CMAKE_INSTALL_BINDIR})  # a link, as it is
    endif()
  endforeach()
endif()
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# The package: which parts there are, and of each build what a program must have in common with it.
foreach(part MPI CUDA)
  set(Trencadis_HAS_${part} OFF)
endforeach()
if(TARGET dist_mpi)
  set(Trencadis_HAS_MPI ON)
endif()
if(TARGET runtime_cuda)
  set(Trencadis_HAS_CUDA ON)
endif()
trencadis_build_traits(traits "${CMAKE_BUILD_TYPE}" "-fsanitize=${TRENCADIS_SANITIZE}")
string(TOUPPER "${CMAKE_BUILD_TYPE}" config)
file(WRITE ${CMAKE_BINARY_DIR}/package/TrencadisBuild-${CMAKE_BUILD_TYPE}.cmake
     "# How the libraries in lib/trencadis/${CMAKE_BUILD_TYPE} were built.\n"
     "list(APPEND Trencadis_BUILDS ${config})\n"
     "set(Trencadis_TRAITS_${config} \"${traits}\")\n")
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/TrencadisConfig.cmake.in
                              ${CMAKE_BINARY_DIR}/package/TrencadisConfig.cmake INSTALL_DESTINATION ${package}
                              NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/package/TrencadisConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/package/TrencadisConfig.cmake
              ${CMAKE_BINARY_DIR}/package/TrencadisConfigVersion.cmake
              ${CMAKE_BINARY_DIR}/package/TrencadisBuild-${CMAKE_BUILD_TYPE}.cmake
              ${CMAKE_CURRENT_LIST_DIR}/build_traits.cmake DESTINATION ${package})
