#include "compiler/tune/ipc.h"

#include <cstring>
#include <type_traits>

namespace stridec::tune {
namespace {

// Writing and reading visit the fields with the same functions.
class Writer {
 public:
  static constexpr bool kReads = false;
  template <class T>
    requires std::is_trivially_copyable_v<T>
  void operator()(T& value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void operator()(std::string& text) {
    size(text.size());
    out += text;
  }
  void operator()(loop::WeightData& data) {
    size(data.size);
    out.append(reinterpret_cast<const char*>(data.bytes), data.size);
  }
  size_t size(size_t count) {
    out.append(reinterpret_cast<const char*>(&count), sizeof count);
    return count;
  }
  std::string out;
};

class Reader {
 public:
  static constexpr bool kReads = true;
  explicit Reader(const std::string& bytes) : at_(bytes.data()) {}
  template <class T>
    requires std::is_trivially_copyable_v<T>
  void operator()(T& value) {
    std::memcpy(&value, at_, sizeof value);
    at_ += sizeof value;
  }
  void operator()(std::string& text) {
    const size_t count = size(0);
    text.assign(at_, count);
    at_ += count;
  }
  void operator()(loop::WeightData& data) {
    data.size = size(0);
    data.bytes = reinterpret_cast<const uint8_t*>(at_);
    at_ += data.size;
  }
  size_t size(size_t) {
    size_t count;
    (*this)(count);
    return count;
  }

 private:
  const char* at_;
};

template <class Way, class T, class Fields>
void each(Way& way, std::vector<T>& items, Fields&& fields) {
  const size_t count = way.size(items.size());
  if (Way::kReads) items.resize(count);
  for (T& item : items) fields(item);
}

template <class Way>
void walk(Way& way, Subject& subject) {
  each(way, subject.arguments, [&](Subject::Argument& argument) {
    way(argument.bytes), way(argument.dtype), way(argument.weight), way(argument.written), way(argument.data);
    way(argument.least), way(argument.most);
  });
  each(way, subject.launches, [&](Subject::Launch& launch) {
    way(launch.symbol), way(launch.image), way(launch.threads), way(launch.cluster);
    way(launch.dynamic_shared), way(launch.dependent), way(launch.fails), way(launch.grid);
    way(launch.shared_bytes), way(launch.workspace_bytes), way(launch.counter_bytes);
    each(way, launch.arguments, way);
    each(way, launch.words, way);
    each(way, launch.maps, way);
  });
}

}  // namespace

std::string pack(const std::vector<Subject>& subjects, const std::vector<bool>& alive,
                 const MeasureOptions& options) {
  Writer way;
  MeasureOptions copy = options;
  way(copy);
  way.size(subjects.size());
  for (size_t s = 0; s < subjects.size(); ++s) {
    char lives = alive[s];
    way(lives);
    if (lives) walk(way, const_cast<Subject&>(subjects[s]));  // a writer does not modify it
  }
  return std::move(way.out);
}

Request unpack(const std::string& bytes) {
  Request request;
  Reader way(bytes);
  way(request.options);
  request.subjects.resize(way.size(0));
  for (Subject& subject : request.subjects) {
    char lives = 0;
    way(lives);
    request.alive.push_back(lives);
    if (lives) walk(way, subject);
  }
  return request;
}

}  // namespace stridec::tune
