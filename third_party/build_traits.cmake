# trencadis_build_traits(out build_type more_flags): what code of this build type, compiled with the flags of this
# directory, must have in common with what it is linked with; a list, empty for an ordinary optimised build:
#
#   debug              its assertions and its speed: a step takes ten times as long
#   address, thread    instrumented by that sanitizer: it believes only what it has instrumented, or reports what is not so
#   _GLIBCXX_DEBUG, old std::string    types of the standard library that look otherwise in memory
#
# Installed beside the package, which asks it of the user's project. It reads flags, so it sees those of CMAKE_CXX_FLAGS,
# of the build type, and of add_compile_options() and add_compile_definitions() before it is called.
function(trencadis_build_traits out build_type more_flags)
  string(TOUPPER "${build_type}" config)
  get_directory_property(options COMPILE_OPTIONS)
  get_directory_property(definitions COMPILE_DEFINITIONS)
  set(flags "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${config}} ${options} ${definitions} ${more_flags}")
  set(traits)
  if(config STREQUAL "DEBUG")
    list(APPEND traits debug)
  endif()
  foreach(sanitizer address thread)
    if(flags MATCHES "-fsanitize=[a-z,]*${sanitizer}")
      list(APPEND traits ${sanitizer})
    endif()
  endforeach()
  if(flags MATCHES "_GLIBCXX_DEBUG([^_A-Z]|$)")
    list(APPEND traits _GLIBCXX_DEBUG)
  endif()
  if(flags MATCHES "_GLIBCXX_USE_CXX11_ABI=0")
    list(APPEND traits "old std::string")
  endif()
  set(${out} "${traits}" PARENT_SCOPE)
endfunction()
