// SPDX-License-Identifier: Apache-2.0
// Feeds every file below the folders given to a fuzz target, so that a compiler
// without libFuzzer runs the corpus too.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size);

namespace {

namespace fs = std::filesystem;

bool replay(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
  if (!file) return false;
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                         bytes.size());
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<fs::path> files;
  for (int i = 1; i < argc; ++i) {
    std::error_code error;
    for (const auto& entry : fs::recursive_directory_iterator(argv[i], error)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    if (error) {
      std::fprintf(stderr, "%s: %s\n", argv[i], error.message().c_str());
      return 1;
    }
  }
  std::sort(files.begin(), files.end());
  for (const fs::path& path : files) {
    // Named before it runs: the last name printed is the one that crashed.
    std::printf("%s\n", path.c_str());
    std::fflush(stdout);
    if (!replay(path)) {
      std::fprintf(stderr, "%s: cannot be read\n", path.c_str());
      return 1;
    }
  }
  if (files.empty()) {
    std::fprintf(stderr, "no files to replay\n");
    return 1;
  }
  return 0;
}
