# Flags that every C target of kops shares: link kops_compile.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(kops_compile INTERFACE)
target_compile_definitions(kops_compile INTERFACE _GNU_SOURCE KOPS_VERSION="${PROJECT_VERSION}")
set(warnings -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wvla -Wstrict-prototypes
             -Wmissing-prototypes)
if(KOPS_WERROR)
  list(APPEND warnings -Werror)
endif()
target_compile_options(kops_compile INTERFACE $<$<COMPILE_LANGUAGE:C>:${warnings}>)

if(KOPS_SANITIZE)
  add_compile_options(-O1) # tests take a third of the time, and lines of code still correspond
  add_compile_options($<$<COMPILE_LANGUAGE:C>:-fsanitize=${KOPS_SANITIZE}>
                      $<$<COMPILE_LANGUAGE:C>:-fno-omit-frame-pointer>
                      $<$<COMPILE_LANGUAGE:C>:-fno-sanitize-recover=all>)
  # GCC guesses worse how long texts are.
  add_compile_options($<$<C_COMPILER_ID:GNU>:-Wno-format-truncation>)
  add_link_options(-fsanitize=${KOPS_SANITIZE})
  find_program(KOPS_LLD ld.lld)
  if(KOPS_LLD) # a hundred programs with sanitizers take half the time to link
    add_link_options(-fuse-ld=lld)
  endif()
  add_compile_definitions(KOPS_SANITIZE="${KOPS_SANITIZE}")
endif()
