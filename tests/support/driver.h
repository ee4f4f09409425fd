// SPDX-License-Identifier: Apache-2.0
// What the programs share that tests in Python drive: tensors and options come
// in one file, results go to another.
#pragma once

#include <cstdio>
#include <exception>
#include <string>

#include "regard/io/safetensors.h"
#include "regard/mask/mask.h"

namespace regard::test {

// main() of the driver `name`, which turns a file into what run(file) returns.
template <typename Run>
int drive(int argc, char** argv, const char* name, const Run& run) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s IN.safetensors OUT.safetensors\n", name);
    return 2;
  }
  try {
    save_safetensors(argv[2], run(SafetensorsFile::open(argv[1])));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return 1;
  }
}

// An option from the metadata.
inline std::string text_of(const SafetensorsFile& file, const std::string& name,
                           const std::string& otherwise = "") {
  const auto found = file.metadata().find(name);
  return found == file.metadata().end() ? otherwise : found->second;
}
inline double number_of(const SafetensorsFile& file, const std::string& name,
                        double otherwise) {
  const std::string text = text_of(file, name);
  return text.empty() ? otherwise : std::stod(text);
}

// Every dense mask whose name starts with keep or drop, and causal = top_left
// or bottom_right. Borrows the file.
inline Mask mask_of(const SafetensorsFile& file) {
  Mask mask;
  for (const std::string& name : file.names()) {
    if (name.starts_with("keep")) {
      mask = mask & mask::keep(file.view<bool, 4>(name));
    } else if (name.starts_with("drop")) {
      mask = mask & mask::drop(file.view<bool, 4>(name));
    }
  }
  const std::string causal = text_of(file, "causal");
  if (causal == "top_left") mask = mask & mask::causal(mask::kTopLeft);
  if (causal == "bottom_right") mask = mask & mask::causal();
  return mask;
}

// The tensors param.<name>, by their names.
inline StateDict parameters_of(const SafetensorsFile& file) {
  StateDict parameters;
  for (const std::string& name : file.names()) {
    if (name.starts_with("param.")) {
      parameters[name.substr(6)] = file.tensor(name);
    }
  }
  return parameters;
}

}  // namespace regard::test
