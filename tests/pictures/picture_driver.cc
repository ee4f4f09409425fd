// SPDX-License-Identifier: Apache-2.0
// What a picture becomes, for the comparison with Pillow. Each line of standard
// input is `file`, `file width height` or `file side`; the answer is a line
// `width height`, and the pixels; or a line that begins with `error `.
#include <cstdio>
#include <exception>
#include <iostream>
#include <sstream>
#include <string>

#include "regard/pictures/picture.h"

int main() {
  using namespace regard::pictures;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string file;
    std::int64_t width = 0;
    std::int64_t height = 0;
    words >> file >> width >> height;
    try {
      Picture picture = read_picture(file);
      if (height > 0) {
        picture = resize(picture, width, height);
      } else if (width > 0) {
        picture = resize_and_crop(picture, width);
      }
      std::printf("%d %d\n", static_cast<int>(picture.width),
                  static_cast<int>(picture.height));
      std::fwrite(picture.rgb.data(), 1, picture.rgb.size(), stdout);
    } catch (const std::exception& refused) {
      std::printf("error %s\n", refused.what());
    }
    std::fflush(stdout);
  }
}
