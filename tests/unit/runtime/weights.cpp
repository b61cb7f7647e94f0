#include "runtime/src/weights.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "stridec/xxh64.h"
#include "tests/support/folder.h"
#include "tests/unit/runtime/harness.h"

using namespace fake;
namespace fs = std::filesystem;

namespace {

std::string bytes_of(const void* data, size_t size) { return {static_cast<const char*>(data), size}; }

// counter() with its weights in a separate file.
struct External {
  stridec::testing::Folder folder;
  std::string directory = folder.path.string();
  stridec_abi_module program = counter();
  stridec_model_options options = {.struct_size = sizeof options, .weights_dir = directory.c_str()};
  stridec_abi_weights_file file = {.mark = STRIDEC_ABI_WEIGHTS_MARK,
                                   .hash = stridec_xxh64(weights, sizeof weights, 0),
                                   .name = "counter.weights"};
  External() { program.weights_file = &file; }
};

}  // namespace

TEST_CASE("XXH64 gives the values of the specification") {
  CHECK(stridec_xxh64("", 0, 0) == 0xEF46DB3751D8E999ull);
  CHECK(stridec_xxh64("a", 1, 0) == 0xD24EC4F1A98C6E5Bull);
  CHECK(stridec_xxh64("abc", 3, 0) == 0x44BC2CF5AD770999ull);
  const char* text = "Nobody inspects the spammish repetition";
  CHECK(stridec_xxh64(text, strlen(text), 0) == 0xFBCEA83C8A378BF1ull);

  std::string bytes(300, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 37 + i / 7);
  for (const size_t piece : {1, 7, 31, 32, 33, 64, 100, 300}) {
    stridec_xxh64_state state = stridec_xxh64_begin(5);
    for (size_t at = 0; at < bytes.size(); at += piece)
      stridec_xxh64_add(&state, bytes.data() + at, std::min(piece, bytes.size() - at));
    CHECK(stridec_xxh64_end(&state) == stridec_xxh64(bytes.data(), bytes.size(), 5));
  }
}

TEST_CASE("weights in a file of their own are used when size and hash are right") {
  External e;
  e.folder.write("counter.weights", bytes_of(weights, sizeof weights));
  Model model(e.program, &e.options);
  REQUIRE(model.status == STRIDEC_OK);
  Context context(model);
  Array<float> x({4}, 1.f), sum({4});
  std::vector<stridec_tensor> outputs = {sum.tensor()};
  REQUIRE(run(context, {x.tensor()}, outputs) == STRIDEC_OK);
  CHECK(sum.data == std::vector<float>{1.5f, 11.f, 21.f, 31.f});
}

TEST_CASE("a wrong weights file is refused with what is wrong") {
  External e;
  auto message = [&](stridec_status status = STRIDEC_BAD_WEIGHTS) {
    Model model(e.program, &e.options);
    CHECK(model.status == status);
    CHECK(model.handle == nullptr);
    std::string text = model.message, prefix = "weights file '" + e.directory + "/counter.weights': ";
    return text.rfind(prefix, 0) == 0 ? text.substr(prefix.size()) : text;
  };
  CHECK(message() == "it does not exist; put it next to the artifact, or name its folder in weights_dir");

  e.folder.write("counter.weights", bytes_of(weights, 12));
  CHECK(message() == "it has 12 bytes, this artifact's weights have 16");

  float other[4] = {1, 2, 3, 4};
  e.folder.write("counter.weights", bytes_of(other, sizeof other));
  CHECK(message() == "its contents are not this artifact's weights (the hash differs)");
  e.options.flags = STRIDEC_MODEL_SKIP_WEIGHTS_HASH;
  CHECK(Model(e.program, &e.options).status == STRIDEC_OK);
  e.options.flags = 0;

  fs::remove(e.folder.path / "counter.weights");
  e.folder.write("elsewhere", bytes_of(weights, sizeof weights));
  fs::create_symlink("elsewhere", e.folder.path / "counter.weights");
  CHECK(message() == "it is a symbolic link, which is not followed");

  fs::remove(e.folder.path / "counter.weights");
  fs::create_directory(e.folder.path / "counter.weights");
  CHECK(message() == "it is not a regular file");

  strcpy(e.file.name, "../counter.weights");
  CHECK(message(STRIDEC_BAD_ARTIFACT) ==
        "the artifact names '../counter.weights' as its weights file; expected a plain file name");
}

TEST_CASE(
    "appended weights and manifest are found through the note; a file cut short is seen without touching "
    "it") {
  stridec::testing::Folder folder;
  std::string content(3 * 4096, 'w');
  content += "{\"format\": 1}";
  folder.write("blob", content);
  int fd = open(folder.file("blob").c_str(), O_RDWR);
  auto* base = static_cast<const char*>(mmap(nullptr, 4 * 4096, PROT_READ, MAP_PRIVATE, fd, 0));
  stridec_abi_note note = note_for_weights(3 * 4096);
  note.manifest_address = 3 * 4096;
  note.manifest_bytes = 13;
  stridec_abi_module program = gather();
  program.weights_bytes = 3 * 4096;
  char message[256];
  stridec_model* model = nullptr;
  auto open_it = [&] {
    return stridec::runtime::open_module(program, note, base, nullptr, &model, message, sizeof message);
  };
  REQUIRE(open_it() == STRIDEC_OK);
  const char* json = nullptr;
  size_t bytes = 0;
  REQUIRE(api().model_manifest(model, &json, &bytes) == STRIDEC_OK);
  CHECK(std::string(json, bytes) == "{\"format\": 1}");
  api().model_close(model);

  program.weights_bytes = 5;
  CHECK(open_it() == STRIDEC_BAD_ARTIFACT);
  CHECK(std::string(message) == "the artifact holds 12288 bytes of weights, but was made for 5");
  program.weights_bytes = 3 * 4096;

  REQUIRE(ftruncate(fd, 4096) == 0);
  CHECK(open_it() == STRIDEC_BAD_ARTIFACT);
  CHECK(std::string(message) == "the artifact's file is truncated: its weights or manifest are incomplete");
  munmap(const_cast<char*>(base), 4 * 4096);
  close(fd);
}

TEST_CASE("weights are copied into huge pages where that is asked for, and the file's pages are let go of") {
  External e;
  std::string content(6 << 20, 'w');
  memcpy(content.data(), weights, sizeof weights);
  content.back() = 'z';
  e.folder.write("counter.weights", content);
  e.program.weights_bytes = content.size();
  auto resident = [] {
    std::map<std::string, long> kilobytes;
    std::ifstream status("/proc/self/status");
    for (std::string key; status >> key; std::getline(status, key)) {
      if (key.starts_with("Rss")) status >> kilobytes[key];
    }
    return kilobytes;
  };
  for (uint32_t flag : {0, static_cast<int>(STRIDEC_MODEL_COPY_WEIGHTS)}) {
    e.options.flags = STRIDEC_MODEL_SKIP_WEIGHTS_HASH | flag;
    auto before = resident();
    Model model(e.program, &e.options);
    REQUIRE(model.status == STRIDEC_OK);
    const stridec::runtime::Blob& blob = model.handle->blob;
    CHECK(std::string(blob.weights.data, blob.weights.size) == content);
    auto after = resident();
    std::ifstream modes("/sys/kernel/mm/transparent_hugepage/enabled");
    const bool huge =
        std::string(std::istreambuf_iterator<char>(modes), {}).find("[never]") == std::string::npos;
    if (flag && huge && modes) {
      CHECK(blob.mapping == nullptr);
      CHECK(after["RssAnon:"] - before["RssAnon:"] >= 6 << 10);
      CHECK(after["RssFile:"] - before["RssFile:"] < 3 << 10);
    } else {
      CHECK(blob.copy.data == nullptr);
    }
    Context context(model);
    Array<float> x({4}, 1.f), sum({4});
    std::vector<stridec_tensor> outputs = {sum.tensor()};
    REQUIRE(run(context, {x.tensor()}, outputs) == STRIDEC_OK);
    CHECK(sum.data == std::vector<float>{1.5f, 11.f, 21.f, 31.f});
  }
}

TEST_CASE("an initial state outside the weights is refused") {
  stridec_abi_module program = counter();
  stridec_abi_state states[2] = {program.states[0], program.states[1]};
  states[0].initial = 4;  // 16 bytes from there exceed the weights by 4
  program.states = states;
  Model model(program);
  Context context(model);
  CHECK(context.status == STRIDEC_BAD_ARTIFACT);
  CHECK(std::string(context.message) == "the initial value of state 'total' is not within the weights");
}
