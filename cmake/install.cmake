# SPDX-License-Identifier: Apache-2.0
# A relocatable package: find_package(regard CONFIG) and pkg-config. No path of
# the machine that built it is written into the prefix.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/regard)
install(TARGETS regard EXPORT regard-targets)
if(TARGET regard_tasks)
  set_target_properties(regard_tasks PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS regard_tasks EXPORT regard-targets)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/regard TYPE INCLUDE FILES_MATCHING PATTERN "*.h")
install(EXPORT regard-targets NAMESPACE regard:: DESTINATION ${package_dir})

# A static library leaves Highway to whoever links it; a shared one does not.
get_target_property(library_type regard TYPE)
if(library_type STREQUAL STATIC_LIBRARY)
  set(REGARD_FIND_HIGHWAY "find_dependency(hwy)")
  set(REGARD_PC_REQUIRES "Requires: libhwy\n")
  set(REGARD_PC_LIBS "-lregard -pthread")
else()
  set(REGARD_FIND_HIGHWAY "")
  set(REGARD_PC_REQUIRES "")
  set(REGARD_PC_LIBS "-lregard")
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
configure_file(${CMAKE_CURRENT_LIST_DIR}/regard.pc.in ${PROJECT_BINARY_DIR}/regard.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/regard.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE TYPE DOC)

if(TARGET regard_program)
  file(RELATIVE_PATH lib_from_bin ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(regard_program PROPERTIES INSTALL_RPATH "$ORIGIN/${lib_from_bin}")
  install(TARGETS regard_program)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/models DESTINATION ${CMAKE_INSTALL_DATADIR}/regard)
endif()
