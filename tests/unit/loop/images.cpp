// Image decoding: all formats, and damaged or truncated bytes.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "runtime/image/image.h"

namespace {

using Bytes = std::vector<uint8_t>;

Bytes pixels_of(const Bytes& image, int32_t format, int32_t* status) {
  int64_t size[2];
  const auto count = static_cast<int64_t>(image.size());
  *status = stridec_image_size(image.data(), count, size);
  if (*status != 0) {
    CHECK(size[0] == -1);
    return {};
  }
  if (size[0] * size[1] > 1 << 22) return {};
  Bytes pixels(static_cast<size_t>(size[0] * size[1] * (format == STRIDEC_IMAGE_GRAYSCALE ? 1 : 3)));
  *status = stridec_image_decode(image.data(), count, size[0], size[1], format, pixels.data());
  return pixels;
}

TEST_CASE("images: every form, changed and cut") {
  for (const auto& entry :
       std::filesystem::directory_iterator(STRIDEC_SOURCE_DIR "/tests/fuzz/seeds/image")) {
    INFO(entry.path().filename().string());
    std::ifstream file(entry.path(), std::ios::binary);
    const Bytes image((std::istreambuf_iterator<char>(file)), {});
    int32_t status = 1;
    const Bytes rgb = pixels_of(image, STRIDEC_IMAGE_RGB, &status),
                bgr = pixels_of(image, STRIDEC_IMAGE_BGR, &status);
    CHECK(status == 0);
    REQUIRE(rgb.size() == 32 * 32 * 3);
    CHECK(rgb[0] == bgr[2]);
    CHECK(pixels_of(image, STRIDEC_IMAGE_GRAYSCALE, &status).size() == 32 * 32);
    // A wrong size must be reported.
    Bytes pixels(32 * 31 * 3);
    CHECK(stridec_image_decode(image.data(), static_cast<int64_t>(image.size()), 32, 31, 0, pixels.data()) !=
          0);
    for (size_t length = 0; length < image.size(); length += 1 + length / 16)
      pixels_of({image.begin(), image.begin() + static_cast<std::ptrdiff_t>(length)}, 0, &status);
    uint32_t state = 1;
    for (int i = 0; i < 400; ++i) {
      Bytes changed = image;
      for (int k = 0; k <= i % 4; ++k) {
        state = state * 1664525 + 1013904223;
        changed[(state >> 8) % (i % 2 ? changed.size() : 100)] ^= static_cast<uint8_t>(state);
      }
      pixels_of(changed, 0, &status);
    }
  }
}

TEST_CASE("images: text of gray and of bits") {
  const auto decode = [](const std::string& text) {
    int32_t status = 1;
    const Bytes pixels = pixels_of({text.begin(), text.end()}, STRIDEC_IMAGE_GRAYSCALE, &status);
    CHECK(status == 0);
    return pixels;
  };
  CHECK(decode("P2 # gray\n3 1 4\n0 2 4\n") == Bytes{0, 128, 255});
  CHECK(decode("P1\n2 2\n01\n1 0") == Bytes{255, 0, 0, 255});
  int32_t status = 0;
  pixels_of({'P', '2', ' ', '3', ' ', '9', ' ', '4', '\n'}, 0, &status);
  CHECK(status != 0);
}

}  // namespace
