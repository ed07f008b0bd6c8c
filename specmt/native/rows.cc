// Memory of rows and scores.
#include "kernels.h"

namespace specmt {

void KeyValues::reserve(int positions, int width) {
  keys.resize(size_t(positions) * width);
  values.resize(size_t(positions) * width);
}

void KeyValues::write(int position, int count, const float* lines, size_t stride, int width) {
  for (int line = 0; line < count; ++line)
    std::copy_n(lines + line * stride + width, width, values.data() + size_t(position + line) * width);
  while (count > 0) {
    const int place = position % kLanes, here = std::min(count, kLanes - place);
    float* block = keys.data() + size_t(position - place) * width + place;
    int line = 0;
    for (; line + 4 <= here; line += 4)
      for (int unit = 0; unit < width; ++unit)
        store(block + size_t(unit) * kLanes + line,
              FourFloats{lines[line * stride + unit], lines[(line + 1) * stride + unit],
                         lines[(line + 2) * stride + unit], lines[(line + 3) * stride + unit]});
    for (; line < here; ++line)
      for (int unit = 0; unit < width; ++unit) block[size_t(unit) * kLanes + line] = lines[line * stride + unit];
    position += here;
    count -= here;
    lines += here * stride;
  }
}

void KeyValues::copy(const KeyValues& from, int count, int width) {
  std::copy_n(from.keys.data(), size_t(rounded_up(count, kLanes)) * width, keys.data());
  std::copy_n(from.values.data(), size_t(count) * width, values.data());
}

void Row::reserve(int positions, int width) {
  if (positions <= capacity) return;
  const int wanted = rounded_up(std::max(positions, 2 * capacity), kLanes);
  for (KeyValues& layer : layers) layer.reserve(wanted, width);
  capacity = wanted;  // now that there was memory for all
}

void Scores::prepare(int lines, int padded_outputs) {
  size = padded_outputs;
  maxima_size = rounded_up(size / kGroup, kLanes);
  all.get(size_t(lines) * size);
  float* padding = maxima.get(size_t(lines) * maxima_size);
  std::fill_n(padding, size_t(lines) * maxima_size, kNone);
}

}  // namespace specmt
