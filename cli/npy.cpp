#include "cli/npy.h"

#include <cstring>
#include <limits>

#include "compiler/base/diagnostic.h"
#include "compiler/base/files.h"
#include "compiler/base/strided.h"
#include "compiler/base/text.h"

namespace stridec::cli {
namespace {

struct DescriptorName {
  const char* descriptor;
  DType dtype;
};
constexpr DescriptorName kDescriptors[] = {
    {"|b1", DType::kBool}, {"|i1", DType::kI8},  {"|u1", DType::kU8},  {"<i2", DType::kI16},
    {"<u2", DType::kU16},  {"<i4", DType::kI32}, {"<u4", DType::kU32}, {"<i8", DType::kI64},
    {"<u8", DType::kU64},  {"<f2", DType::kF16}, {"<f4", DType::kF32}, {"<f8", DType::kF64},
};

[[noreturn]] void malformed(const std::string& path, const std::string& why) {
  fail(ErrorKind::kMalformed, "bad-npy", cat("'", path, "' is not a readable .npy file: ", why));
}

// The value of a key in the header's Python dict, up to the comma or brace after it.
std::string value_of(const std::string& header, const std::string& key, const std::string& path) {
  size_t at = header.find("'" + key + "'");
  if (at == std::string::npos) malformed(path, "its header has no '" + key + "'");
  at = header.find(':', at);
  if (at == std::string::npos) malformed(path, "its header is truncated");
  ++at;
  while (at < header.size() && header[at] == ' ') ++at;
  size_t end = at;
  int depth = 0;
  for (; end < header.size(); ++end) {
    if (header[end] == '(') ++depth;
    if (header[end] == ')') --depth;
    if (depth == 0 && (header[end] == ',' || header[end] == '}')) break;
  }
  std::string value = header.substr(at, end - at);
  while (!value.empty() && value.back() == ' ') value.pop_back();
  return value;
}

std::vector<int64_t> parse_shape(const std::string& text, const std::string& path) {
  std::vector<int64_t> shape;
  int64_t number = 0;
  bool digits = false;
  for (char c : text) {
    if (c >= '0' && c <= '9') {
      if (number > (std::numeric_limits<int64_t>::max() - 9) / 10) malformed(path, "its shape is too large");
      number = number * 10 + (c - '0');
      digits = true;
    } else if (c == ',' || c == ')') {
      if (digits) shape.push_back(number);
      number = 0, digits = false;
    } else if (c != '(' && c != ' ') {
      malformed(path, "its shape is " + text);
    }
  }
  return shape;
}

std::vector<uint8_t> from_fortran(const Array& array) {
  const size_t item = static_cast<size_t>(byte_size(array.dtype));
  std::vector<uint8_t> out(array.bytes.size());
  std::vector<int64_t> strides;
  for (int64_t step = 1; const int64_t dim : array.shape) {
    strides.push_back(step);
    step *= dim;
  }
  for_each_place(array.shape, strides, 0, [&](int64_t element, int64_t place) {
    std::memcpy(out.data() + static_cast<size_t>(element) * item,
                array.bytes.data() + static_cast<size_t>(place) * item, item);
  });
  return out;
}

}  // namespace

int64_t Array::count() const {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

Array read_npy(const std::string& path, DType expected) { return parse_npy(read_file(path), path, expected); }

Array parse_npy(const std::string& file, const std::string& path, DType expected) {
  if (file.size() < 10 || std::memcmp(file.data(), "\x93NUMPY", 6) != 0)
    malformed(path, "it does not begin with \\x93NUMPY");
  const bool wide = file[6] >= 2;
  uint32_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data() + 8, wide ? 4 : 2);
  const size_t start = (wide ? 12u : 10u) + size_t{header_bytes};
  if (start > file.size()) malformed(path, "its header is truncated");
  const std::string header = file.substr(wide ? 12 : 10, header_bytes);
  std::string descriptor = value_of(header, "descr", path);
  if (descriptor.size() >= 2) descriptor = descriptor.substr(1, descriptor.size() - 2);
  Array array;
  array.shape = parse_shape(value_of(header, "shape", path), path);
  bool known = false;
  for (const auto& row : kDescriptors)
    if (descriptor == row.descriptor) array.dtype = row.dtype, known = true;
  if (!known && descriptor == cat("|V", byte_size(expected))) array.dtype = expected, known = true;
  if (!known && descriptor == cat("<V", byte_size(expected))) array.dtype = expected, known = true;
  if (!known)
    fail(ErrorKind::kUnsupported, "npy-dtype",
         cat("'", path, "' holds elements of type '", descriptor, "', which stridec does not support"));
  // Types that NumPy lacks are stored as unsigned integers of their size.
  if (array.dtype != expected && byte_size(array.dtype) == byte_size(expected) &&
      info(array.dtype).kind == DTypeKind::kUnsigned &&
      (is_storage_float(expected) || info(expected).bits < 8 || is_bool(expected)))
    array.dtype = expected;
  uint64_t bytes = static_cast<uint64_t>(byte_size(array.dtype));
  for (int64_t d : array.shape)
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(d), &bytes))
      malformed(path, "its shape is too large");
  if (file.size() - start < bytes)
    malformed(path, cat("its shape needs ", bytes, " bytes, but it has ", file.size() - start));
  array.bytes.assign(file.begin() + static_cast<int64_t>(start),
                     file.begin() + static_cast<int64_t>(start + bytes));
  if (value_of(header, "fortran_order", path) == "True") array.bytes = from_fortran(array);
  return array;
}

std::string npy_text(const Array& array) {
  std::string descriptor = cat("|V", byte_size(array.dtype));
  for (const auto& row : kDescriptors)
    if (row.dtype == array.dtype) descriptor = row.descriptor;
  if (info(array.dtype).bits < 8 && !is_bool(array.dtype))
    descriptor = is_signed(array.dtype) ? "|i1" : "|u1";
  std::string shape = join(array.shape, ", ", [](int64_t d) { return std::to_string(d); });
  if (array.shape.size() == 1) shape += ",";
  std::string header = cat("{'descr': '", descriptor, "', 'fortran_order': False, 'shape': (", shape, "), }");
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::string file("\x93NUMPY\x01\x00", 8);
  const uint16_t length = static_cast<uint16_t>(header.size());
  file.append(reinterpret_cast<const char*>(&length), 2);
  file += header;
  file.append(reinterpret_cast<const char*>(array.bytes.data()), array.bytes.size());
  return file;
}

void write_npy(const std::string& path, const Array& array) { write_file(path, npy_text(array)); }

}  // namespace stridec::cli
