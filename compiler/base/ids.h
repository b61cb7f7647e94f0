// Strong 32-bit indices into a vector owned by someone else: `using BufferId = Id<struct BufferTag>;`
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace stridec {

template <class Tag>
struct Id {
  int32_t value = -1;
  constexpr Id() = default;
  constexpr explicit Id(int64_t v) : value(static_cast<int32_t>(v)) {}
  constexpr bool valid() const { return value >= 0; }
  constexpr auto operator<=>(const Id&) const = default;
};

}  // namespace stridec

template <class Tag>
struct std::hash<stridec::Id<Tag>> {
  size_t operator()(stridec::Id<Tag> id) const { return std::hash<int32_t>{}(id.value); }
};
