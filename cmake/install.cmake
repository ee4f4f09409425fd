# SPDX-License-Identifier: Apache-2.0
# A relocatable package: find_package(regard CONFIG) and pkg-config. No path of
# the machine that built it is written into the prefix.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/regard)
set_target_properties(regard_dist PROPERTIES INSTALL_RPATH "$ORIGIN")
install(TARGETS regard regard_dist EXPORT regard-targets)
if(TARGET regard_tasks)
  set_target_properties(regard_tasks PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS regard_tasks EXPORT regard-targets)
endif()
if(TARGET regard_mpi)
  # A file of its own: who does not ask for it needs no MPI.
  set_target_properties(regard_mpi PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS regard_mpi EXPORT regard-mpi-targets)
  install(EXPORT regard-mpi-targets NAMESPACE regard:: DESTINATION ${package_dir})
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/regard TYPE INCLUDE FILES_MATCHING PATTERN "*.h")
install(EXPORT regard-targets NAMESPACE regard:: DESTINATION ${package_dir})

# A static library leaves what it links to whoever links it; a shared one does not.
set(REGARD_FIND_HIGHWAY "")
set(regard_libs -lregard)
set(regard_requires "")
set(tasks_libs -lregard_tasks -lregard_dist)
get_target_property(library_type regard TYPE)
if(library_type STREQUAL STATIC_LIBRARY)
  set(REGARD_FIND_HIGHWAY "find_dependency(hwy)")
  list(APPEND regard_libs -pthread)
  # For whom a C compiler links.
  foreach(library stdc++ c++)
    if(library IN_LIST CMAKE_CXX_IMPLICIT_LINK_LIBRARIES)
      list(APPEND regard_libs -l${library})
    endif()
  endforeach()
  list(APPEND regard_libs -lm)
  list(APPEND regard_requires libhwy)
  if(TARGET regard_tasks)
    # The libraries that CMake's package names, too.
    get_target_property(links regard_tasks LINK_LIBRARIES)
    foreach(link ${links})
      if(link MATCHES "^\\$<INSTALL_INTERFACE:(.+)>$")
        list(APPEND tasks_libs -l${CMAKE_MATCH_1})
      endif()
    endforeach()
  endif()
endif()
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/regard-config.cmake.in
                              ${PROJECT_BINARY_DIR}/regard-config.cmake
                              INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/regard-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/regard-config.cmake ${PROJECT_BINARY_DIR}/regard-config-version.cmake
        DESTINATION ${package_dir})

file(RELATIVE_PATH REGARD_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" REGARD_PC_PREFIX "${REGARD_PC_PREFIX}")
# regard_pc(NAME DESCRIPTION LIBS REQUIRES) installs NAME.pc.
function(regard_pc REGARD_PC_NAME REGARD_PC_DESCRIPTION libs REGARD_PC_REQUIRES)
  list(JOIN libs " " REGARD_PC_LIBS)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/regard.pc.in ${PROJECT_BINARY_DIR}/${REGARD_PC_NAME}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${REGARD_PC_NAME}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
regard_pc(regard "${PROJECT_DESCRIPTION}" "${regard_libs}" "${regard_requires}")
if(TARGET regard_tasks)
  regard_pc(regard-tasks "Tokenizers, training, translation and text generation upon regard" "${tasks_libs}"
            "regard = ${PROJECT_VERSION}")
endif()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE TYPE DOC)

if(TARGET regard_program)
  file(RELATIVE_PATH lib_from_bin ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(regard_program PROPERTIES INSTALL_RPATH "$ORIGIN/${lib_from_bin}")
  install(TARGETS regard_program)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/models DESTINATION ${CMAKE_INSTALL_DATADIR}/regard)
endif()
