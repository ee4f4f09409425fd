// SPDX-License-Identifier: Apache-2.0
// mobilenet_driver WEIGHTS PICTURE OUT [REPEATS]: the features of a picture as
// .npy, and where asked for the milliseconds that they took on average, with
// all threads and with one.
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "regard/io/npy.h"
#include "regard/io/safetensors.h"
#include "regard/pictures/mobilenet.h"

int main(int argc, char** argv) {
  using namespace regard;
  if (argc < 4) return 2;
  const pictures::MobileNetV2 net(SafetensorsFile::open(argv[1]).state_dict());
  const pictures::Picture picture = pictures::read_picture(argv[2]);
  save_npy(argv[3], net.features(picture));
  const int repeats = argc > 4 ? std::atoi(argv[4]) : 0;
  for (const int threads : {0, 1}) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < repeats; ++i) {
      net.features(picture, {.count = threads});
    }
    const std::chrono::duration<double, std::milli> took =
        std::chrono::steady_clock::now() - start;
    if (repeats > 0) std::printf("%.2f\n", took.count() / repeats);
  }
}
