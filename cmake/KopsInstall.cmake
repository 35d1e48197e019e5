# Programs and libraries that are installed in `folder` find libkops from there, so the prefix may be anywhere. The loader
# looks in /usr by itself.
function(kops_finds_libkops folder)
  if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
    return()
  endif()
  file(RELATIVE_PATH way /prefix/${folder} /prefix/${CMAKE_INSTALL_LIBDIR})
  set_target_properties(${ARGN} PROPERTIES INSTALL_RPATH "$ORIGIN/${way}")
endfunction()
