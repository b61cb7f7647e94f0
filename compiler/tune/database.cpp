#include "compiler/tune/database.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <ranges>
#include <set>

#include "compiler/base/cache_folder.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/files.h"
#include "compiler/base/sort.h"
#include "compiler/base/text.h"

namespace stridec::tune {
namespace {

constexpr std::string_view kHeader =
    "# stridec tuning 1: structure shape target threads compiler | time default noise tried | schedule | "
    "kernel\n";
constexpr std::string_view kFormat = "# stridec tuning ";
constexpr std::string_view kLearned = "learned ";
constexpr std::string_view kExtension = "extension ";

std::vector<std::string_view> split(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + separator.size());
  }
}

// largest value that is read: far beyond any measurement, and written in full
constexpr double kLargest = 1e15;

// Parses a number followed by exactly this unit.
template <class Number>
bool read_any(std::string_view text, std::string_view unit, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && std::string_view(end, text.data() + text.size()) == unit;
}
template <class Number>
bool read(std::string_view text, std::string_view unit, Number& value) {
  return read_any(text, unit, value) && value >= 0 && static_cast<double>(value) <= kLargest;
}

// "znver5", "sm_90a@NVIDIA_H200".
void read_machine(std::string_view text, Key& key) {
  const size_t at = text.find('@');
  key.target = text.substr(0, at);
  key.device = at == std::string_view::npos ? "" : text.substr(at + 1);
}

bool same_machine(const Key& a, const Key& b) {
  return a.target == b.target && a.device == b.device && a.threads == b.threads && a.compiler == b.compiler;
}

std::optional<Learned> parse_learned(std::string_view line) {
  const auto parts = split(line, " | ");
  if (parts.size() != 3) return std::nullopt;
  const auto key = split(parts[0], " "), figures = split(parts[1], " ");
  Learned learned{.key = {}, .family = std::string(parts[2]), .lesson = {}};
  ModelError& lesson = learned.lesson;
  if (key.size() != 4 || figures.size() != 3 || !read(key[2], "", learned.key.threads) ||
      !read(figures[0], "", lesson.count) || !read_any(figures[1], "", lesson.sum) ||
      !read(figures[2], "", lesson.squares) || !(lesson.squares < 1e9) || !(std::abs(lesson.sum) < 1e9) ||
      !(lesson.count < 1e9))
    return std::nullopt;
  // Rounded as in the file, so that sums are the same before and after writing.
  lesson.count = std::round(lesson.count);
  lesson.sum = std::round(lesson.sum * 1e4) / 1e4, lesson.squares = std::round(lesson.squares * 1e4) / 1e4;
  read_machine(key[1], learned.key);
  learned.key.compiler = key[3];
  return learned;
}

std::optional<Extension> parse_extension(std::string_view line) {
  const auto parts = split(line.substr(kExtension.size()), " | ");
  if (parts.size() != 2 || parts[0].size() != 64) return std::nullopt;
  return Extension{.sha256 = std::string(parts[0]), .name = std::string(parts[1])};
}

// The name as it appears in a line. It comes from a model, so it may contain anything.
std::string kernel_name(std::string kernel) {
  for (char& c : kernel)
    if (c == '|' || static_cast<unsigned char>(c) < 32) c = '_';
  return kernel;
}

std::optional<Entry> parse_line(std::string_view line) {
  const auto parts = split(line, " | ");
  if (parts.size() != 4) return std::nullopt;
  const auto key = split(parts[0], " "), figures = split(parts[1], " ");
  Entry entry{.schedule = std::string(parts[2]), .kernel = kernel_name(std::string(parts[3]))};
  if (key.size() != 5 || figures.size() != 4 || !read(key[3], "", entry.key.threads) ||
      !read(figures[0], "us", entry.microseconds) || !read(figures[1], "us", entry.default_microseconds) ||
      !read(figures[2], "%", entry.noise_percent) || !read(figures[3], "", entry.tried))
    return std::nullopt;
  entry.key.structure = key[0], entry.key.shape = key[1], entry.key.compiler = key[4];
  read_machine(key[2], entry.key);
  try {
    loop::parse_schedule(entry.schedule);
  } catch (const Error&) {
    return std::nullopt;
  }
  return entry;
}

std::string sizes_of(const std::string& shape, const std::vector<sym::Expr>& symbols) {
  return join(split(shape, ","), " and ", [&](std::string_view bucket) {
    const auto values = split(bucket, "x");
    if (values.size() != symbols.size()) return std::string(bucket);  // a line edited by hand
    size_t at = 0;
    return join(values, ",", [&](std::string_view value) { return cat(symbols[at++].name(), "=", value); });
  });
}

std::string number(const char* format, double value) {
  char text[48];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

}  // namespace

std::string this_compiler() { return cat(STRIDEC_VERSION, "-", kCodegenRevision); }
std::string this_gpu_compiler() { return cat(STRIDEC_VERSION, "-", kGpuRevision); }

std::string machine_of(const Key& key) {
  return key.device.empty() ? key.target : cat(key.target, "@", key.device);
}

std::string difference(const Key& key, const Key& wanted, const std::vector<sym::Expr>& symbols) {
  std::vector<std::string> parts;
  if (key.shape != wanted.shape) parts.push_back("sizes up to " + sizes_of(key.shape, symbols));
  if (machine_of(key) != machine_of(wanted)) parts.push_back("target " + machine_of(key));
  if (key.threads != wanted.threads)
    parts.push_back(cat(key.threads, key.threads == 1 ? " thread" : " threads"));
  if (key.compiler != wanted.compiler) parts.push_back("compiler " + key.compiler);
  return join(parts, ", ");
}

std::string to_string(const Key& key) {
  return cat(key.structure, " ", key.shape, " ", machine_of(key), " ", key.threads, " ", key.compiler);
}

std::string to_string(const Entry& entry) {
  return cat(to_string(entry.key), " | ", number("%.4fus", entry.microseconds), " ",
             number("%.4fus", entry.default_microseconds), " ", number("%.2f%%", entry.noise_percent), " ",
             entry.tried, " | ", entry.schedule, " | ", kernel_name(entry.kernel));
}

std::string to_string(const Learned& learned) {
  const ModelError& lesson = learned.lesson;
  return cat(kLearned, machine_of(learned.key), " ", learned.key.threads, " ", learned.key.compiler, " | ",
             number("%.0f", lesson.count), " ", number("%.4f", lesson.sum), " ",
             number("%.4f", lesson.squares), " | ", learned.family);
}

std::string to_string(const Extension& extension) {
  return cat(kExtension, extension.sha256, " | ", kernel_name(extension.name));
}

Contents parse_contents(const std::string& text, const std::string& file) {
  Contents contents;
  int number = 0;
  for (std::string_view line : split(text, "\n")) {
    ++number;
    const bool other = line.starts_with(kFormat) && !line.starts_with("# stridec tuning 1");
    if (line.ends_with('\r')) line.remove_suffix(1);  // a git checkout on Windows has such line ends
    if (!other && (line.empty() || line.starts_with("#"))) continue;
    const bool lesson = line.starts_with(kLearned);
    std::optional<Learned> learned = lesson ? parse_learned(line) : std::nullopt;
    if (!other && line.starts_with(kExtension))
      if (const auto extension = parse_extension(line)) {
        contents.extensions.push_back(*extension);
        continue;
      }
    std::optional<Entry> entry = other || lesson ? std::nullopt : parse_line(line);
    if (learned) {
      contents.learned.push_back(*std::move(learned));
      continue;
    }
    if (!entry) {
      Error error({.kind = ErrorKind::kMalformed,
                   .code = "bad-tuning",
                   .message = cat("line ", number,
                                  other ? " has another format" : " is not an entry of a tuning database"),
                   .help = "'stridec tune' writes such files; remove the line, or the file"});
      error.diagnostic.where.file = file;
      throw error;
    }
    contents.entries.push_back(*std::move(entry));
  }
  return contents;
}

Database::Database(std::string file, bool must_exist) : file_(std::move(file)) {
  std::error_code error;
  if (file_.empty() || (!must_exist && !std::filesystem::exists(file_, error))) return;
  try {
    contents_ = parse_contents(read_file(file_), file_);
  } catch (Error& error) {
    error.diagnostic.where.file = file_;
    if (error.diagnostic.kind == ErrorKind::kUnreadable && error.diagnostic.help.empty())
      error.diagnostic.help =
          cat("this is the tuning database: 'stridec tune --tune-db ", file_, "' writes it");
    throw;
  }
}

const Entry* Database::find(const Key& key) const {
  const std::vector<Entry>& all = contents_.entries;
  for (size_t i = all.size(); i-- > 0;) {
    const Key& each = all[i].key;
    if (each == key) return &all[i];
    if (key.device.empty() && key.is_gpu() && each.structure == key.structure && each.shape == key.shape &&
        each.target == key.target && each.is_gpu() && each.compiler == key.compiler)
      return &all[i];
  }
  return nullptr;
}

std::vector<Entry> Database::held() const {
  std::vector<Entry> held;
  std::set<std::string> seen;
  for (const Entry& entry : std::views::reverse(contents_.entries))
    if (seen.insert(to_string(entry.key)).second) held.push_back(entry);
  std::ranges::reverse(held);
  return held;
}

void Database::append(const Entry& entry) {
  // Parsed back from the text, so that the artifact that was tuned and one that is replayed get the same
  // figures.
  const std::string line = to_string(entry);
  contents_.entries.push_back(*parse_line(line));
  write_lines(line + "\n");
}

ModelErrors Database::lessons(const Key& key) const {
  ModelErrors lessons;
  for (const Learned& learned : contents_.learned)
    if (same_machine(learned.key, key)) lessons[learned.family].add(learned.lesson);
  return lessons;
}

void Database::append(const Key& key, const ModelErrors& lessons) {
  std::string lines;
  for (const auto& [family, lesson] : lessons) {
    contents_.learned.push_back(
        {{.target = key.target, .device = key.device, .threads = key.threads, .compiler = key.compiler},
         family,
         lesson});
    lines += to_string(contents_.learned.back()) + "\n";
  }
  if (!lines.empty()) write_lines(std::move(lines));
}

void Database::append(const Extension& extension) {
  if (std::ranges::count(contents_.extensions, extension.sha256, &Extension::sha256) > 0) return;
  contents_.extensions.push_back(extension);
  write_lines(to_string(extension) + "\n");
}

void Database::write_lines(std::string lines) const {
  if (file_.empty()) return;
  const std::filesystem::path folder = std::filesystem::path(file_).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  const int descriptor = open(file_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor < 0)
    fail(ErrorKind::kUnreadable, "unwritable",
         cat("cannot write '", file_, "': ", error ? error.message() : std::strerror(errno)),
         "name another file with --tune-db");
  const off_t end = lseek(descriptor, 0, SEEK_END);
  // A file edited by hand may lack the last line end.
  char last = '\n';
  if (end == 0)
    lines.insert(0, kHeader);
  else if (pread(descriptor, &last, 1, end - 1) == 1 && last != '\n')
    lines.insert(0, "\n");
  const bool written = write(descriptor, lines.data(), lines.size()) == static_cast<ssize_t>(lines.size());
  const int reason = errno;
  close(descriptor);
  if (!written)
    fail(ErrorKind::kOverBudget, "disk", cat("cannot write '", file_, "': ", std::strerror(reason)));
}

std::string default_database() {
  const std::string folder = cache_folder();
  return folder.empty() ? "" : folder + "/tuning.txt";
}

Contents merged(const Contents& contents) {
  std::map<std::string, Entry> by_key;
  for (const Entry& entry : contents.entries) {
    const auto [found, fresh] = by_key.emplace(to_string(entry.key), entry);
    if (!fresh && entry.tried >= found->second.tried) found->second = entry;
  }
  std::map<std::string, Learned> learned;
  for (const Learned& each : contents.learned) {
    const auto [found, fresh] = learned.emplace(cat(to_string(each.key), " ", each.family), each);
    if (!fresh) found->second.lesson.add(each.lesson);
  }
  Contents out;
  for (auto& [key, entry] : by_key) out.entries.push_back(std::move(entry));
  sort_stable(out.entries, [](const Entry& x, const Entry& y) { return x.kernel < y.kernel; });
  for (auto& [key, each] : learned) out.learned.push_back(std::move(each));
  for (const Extension& extension : contents.extensions)
    if (std::ranges::count(out.extensions, extension) == 0) out.extensions.push_back(extension);
  return out;
}

std::string file_text(const Contents& contents) {
  std::string text(kHeader);
  for (const Entry& entry : contents.entries) text += to_string(entry) + "\n";
  for (const Learned& learned : contents.learned) text += to_string(learned) + "\n";
  for (const Extension& extension : contents.extensions) text += to_string(extension) + "\n";
  return text;
}

}  // namespace stridec::tune
