# Precompiled headers: fmt and what the sources use most of the standard library, read once instead of by every source.
# Reading them took most of the time of a build (CONTRIBUTING.md, "Where the time goes"). Headers of this project are not
# among them, so that a change of one compiles what includes it and no more.
#
# A source must still name every header that it uses: TRENCADIS_PRECOMPILE=OFF builds without, as Clang does here.
option(TRENCADIS_PRECOMPILE "Precompile the headers of fmt and the standard library (GCC)" ON)
set(TRENCADIS_PRECOMPILED_HEADERS <fmt/format.h> <algorithm> <array> <atomic> <chrono> <cmath> <condition_variable> <cstdint>
    <cstring> <filesystem> <fstream> <functional> <map> <memory> <mutex> <numeric> <optional> <set> <span> <sstream> <string>
    <thread> <unordered_map> <vector>)

# One set of them for each way to compile that GCC tells apart: position-independent or not, optimised or not. Made for
# the targets that exist by now, in this directory and below.
function(trencadis_precompile_headers directory)
  if(NOT TRENCADIS_PRECOMPILE OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    return()
  endif()
  get_property(targets DIRECTORY ${directory} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target ${targets})
    get_target_property(type ${target} TYPE)
    get_target_property(linked ${target} LINK_LIBRARIES)
    if(NOT type MATCHES "EXECUTABLE|STATIC|OBJECT|MODULE" OR NOT "trencadis_flags" IN_LIST linked)
      continue()
    endif()
    get_target_property(independent ${target} POSITION_INDEPENDENT_CODE)
    get_target_property(options ${target} COMPILE_OPTIONS)
    get_target_property(without ${target} DISABLE_PRECOMPILE_HEADERS)
    if(without)
      continue()
    endif()
    set(name precompiled)
    if(independent)
      string(APPEND name _independent)
    endif()
    if(CMAKE_BUILD_TYPE STREQUAL "Sanitize" AND "${options}" MATCHES "-O0")
      string(APPEND name _unoptimised)
    endif()
    if(NOT TARGET ${name})
      file(WRITE ${CMAKE_BINARY_DIR}/precompiled.cpp "// A target must have a source.\n")
      add_library(${name} OBJECT ${CMAKE_BINARY_DIR}/precompiled.cpp)
      target_link_libraries(${name} PRIVATE trencadis_flags fmt::fmt)
      target_precompile_headers(${name} PRIVATE ${TRENCADIS_PRECOMPILED_HEADERS})
      set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ${independent})
      if(name MATCHES unoptimised)
        target_compile_options(${name} PRIVATE -O0)
      endif()
    endif()
    target_precompile_headers(${target} REUSE_FROM ${name})
    # GCC takes them only where their macros are defined alike, also in a target that does not use fmt.
    target_compile_definitions(${target} PRIVATE $<TARGET_PROPERTY:fmt::fmt,INTERFACE_COMPILE_DEFINITIONS>)
    # ccache must see which headers; options that GCC takes for others make a slow build, with a warning, not a broken one.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess;-Wno-error=invalid-pch>)
  endforeach()
  get_property(subdirectories DIRECTORY ${directory} PROPERTY SUBDIRECTORIES)
  foreach(subdirectory ${subdirectories})
    trencadis_precompile_headers(${subdirectory})
  endforeach()
endfunction()
