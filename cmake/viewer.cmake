# SPDX-License-Identifier: Apache-2.0
# The viewer's page, which stands built in the project, becomes bytes of the
# library: nobody who builds regard needs Node. REGARD_PAGE_SOURCE is the source
# that holds them.
set(page ${PROJECT_SOURCE_DIR}/viewer/page/index.html)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${page})
file(READ ${page} REGARD_PAGE_BYTES HEX)
string(REGEX REPLACE "(..)" "0x\\1," REGARD_PAGE_BYTES "${REGARD_PAGE_BYTES}")
set(REGARD_PAGE_SOURCE ${PROJECT_BINARY_DIR}/viewer_page.cc)
# What it takes to write a page, beside that: all that the Python module has.
set(REGARD_PAGE_SOURCES base64.cc imported_weights.cc page.cc trace.cc trace_json.cc ../json/json.cc)
configure_file(${PROJECT_SOURCE_DIR}/src/view/page_bytes.cc.in ${REGARD_PAGE_SOURCE} @ONLY)

# The server of `regard view`. The package's own flags matter: they change the
# layout of the library's classes.
find_package(PkgConfig)
if(PkgConfig_FOUND)
  pkg_check_modules(HTTPLIB IMPORTED_TARGET "cpp-httplib >= 0.11" "cpp-httplib < 0.12")
endif()
if(HTTPLIB_FOUND)
  set(REGARD_NO_SERVER "/no_server\\.cc$")
else()
  message(STATUS "cpp-httplib 0.11 is not here (Debian 12: libcpp-httplib-dev): regard view writes pages and serves none")
  set(REGARD_NO_SERVER "/(server|connection|routes)\\.cc$")
endif()
