# Tells the dynamic linker of libkops, whose cache has what is below /usr and /usr/local. The paths of
# KopsInstall.cmake do not help the programs that others link with libkops. Packages, which set DESTDIR, have a trigger for it.
if("$ENV{DESTDIR}" STREQUAL "" AND CMAKE_INSTALL_PREFIX MATCHES "^/usr(/local)?/?$")
  find_program(LDCONFIG ldconfig PATHS /sbin /usr/sbin)
  execute_process(COMMAND "${LDCONFIG}" RESULT_VARIABLE failed)
  if(failed)
    message(STATUS "Could not run ldconfig: programs find libkops after root runs it")
  endif()
endif()
