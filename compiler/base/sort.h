// A stable sort. (std::stable_sort of libstdc++ 12 uses a function that C++17 deprecates, so clang warns.)
#pragma once

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace stridec {

template <class T, class Less>
void sort_stable(std::vector<T>& items, Less&& less) {
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t x, size_t y) {
    if (less(items[x], items[y])) return true;
    return !less(items[y], items[x]) && x < y;
  });
  std::vector<T> sorted;
  sorted.reserve(items.size());
  for (const size_t i : order) sorted.push_back(std::move(items[i]));
  items = std::move(sorted);
}

}  // namespace stridec
