# Compiler flags, options, and what this machine has. One line is printed for each optional thing that is missing.

set(TUTTI_SANITIZE "" CACHE STRING "address | undefined | thread | address,undefined")
option(TUTTI_WERROR "Warnings are errors" OFF)
option(TUTTI_FUZZ "Build the libFuzzer programs (needs clang as the C compiler)" OFF)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Debug | RelWithDebInfo | Release" FORCE)
endif()
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g")
if(TUTTI_LIBRARY_ONLY)
  set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2") # a wheel's library is stripped
endif()
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

add_compile_options(-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes)
if(TUTTI_WERROR)
  add_compile_options(-Werror)
endif()

# libFuzzer's coverage must be in the library too; it comes with both sanitizers.
if(TUTTI_FUZZ AND NOT CMAKE_C_COMPILER_ID MATCHES Clang)
  message(FATAL_ERROR "TUTTI_FUZZ needs clang: configure with -DCMAKE_C_COMPILER=clang")
elseif(TUTTI_FUZZ)
  set(TUTTI_SANITIZE address,undefined)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(TUTTI_SANITIZE)
  set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g1") # reports have functions and lines; variables for a debugger: -DCMAKE_BUILD_TYPE=Debug
  add_compile_options(-fsanitize=${TUTTI_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${TUTTI_SANITIZE})
endif()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

# tutti_find(NAME header library what): imported target tutti_NAME, or one line that says what is left out.
function(tutti_find name header library what)
  find_path(${name}_INCLUDE ${header})
  find_library(${name}_LIBRARY ${library})
  mark_as_advanced(${name}_INCLUDE ${name}_LIBRARY)
  if(${name}_INCLUDE AND ${name}_LIBRARY)
    add_library(tutti_${name} INTERFACE)
    target_include_directories(tutti_${name} SYSTEM INTERFACE ${${name}_INCLUDE})
    target_link_libraries(tutti_${name} INTERFACE ${${name}_LIBRARY})
  else()
    message(STATUS "${name} not found: ${what} (scripts/deps names the package)")
  endif()
endfunction()

# The handshake of every connection needs libsodium: without it there is no library.
find_path(sodium_INCLUDE sodium.h)
find_library(sodium_LIBRARY sodium)
mark_as_advanced(sodium_INCLUDE sodium_LIBRARY)
if(NOT sodium_INCLUDE OR NOT sodium_LIBRARY)
  message(FATAL_ERROR "libsodium not found: the library needs it (`scripts/deps build` installs it; on Debian or Ubuntu: libsodium-dev)")
endif()
add_library(tutti_sodium INTERFACE)
target_include_directories(tutti_sodium SYSTEM INTERFACE ${sodium_INCLUDE})

# Machines are described in XML: without expat there is no library either.
find_path(expat_INCLUDE expat.h)
find_library(expat_LIBRARY expat)
mark_as_advanced(expat_INCLUDE expat_LIBRARY)
if(NOT expat_INCLUDE OR NOT expat_LIBRARY)
  message(FATAL_ERROR "expat not found: the library needs it (`scripts/deps build` installs it; on Debian or Ubuntu: libexpat1-dev)")
endif()
add_library(tutti_expat INTERFACE)
target_include_directories(tutti_expat SYSTEM INTERFACE ${expat_INCLUDE})

tutti_find(jansson jansson.h jansson "the perf programs and tutti-topo are not built")
tutti_find(cmocka cmocka.h cmocka "the unit tests are not built")
find_program(TUTTI_BASH bash)
