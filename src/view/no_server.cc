// SPDX-License-Identifier: Apache-2.0
// The server where cpp-httplib is not there.
#include "regard/core/error.h"
#include "regard/view/server.h"

namespace regard::view {

struct Server::Parts {};

bool server_available() { return false; }

Server::Server(const tasks::Translator*, std::optional<Trace>, ServerOptions) {
  require(false, "view::Server",
          "regard was built without cpp-httplib, which serves the page; "
          "--export writes it to a file");
}
Server::~Server() = default;
int Server::port() const { return 0; }
void Server::run() {}
void Server::stop() {}

}  // namespace regard::view
