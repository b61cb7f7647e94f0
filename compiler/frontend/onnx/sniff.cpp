#include "compiler/frontend/onnx/sniff.h"

#include <algorithm>
#include <string_view>

namespace stridec::onnx {
namespace {

using namespace std::string_view_literals;

struct Magic {
  size_t offset;
  std::string_view bytes;
  std::string_view what;
  std::string_view help;
};

constexpr std::string_view kExport = "export it to ONNX first, for example with torch.onnx.export";

constexpr Magic kMagics[] = {
    {0, "version https://git-lfs.github.com/"sv, "a git-lfs pointer, not the file it stands for",
     "run 'git lfs pull'"},
    {0, "\x89PNG\r\n"sv, "a PNG image", ""},
    {0, "\xff\xd8\xff"sv, "a JPEG image", ""},
    {0, "GIF8"sv, "a GIF image", ""},
    {0, "%PDF-"sv, "a PDF document", ""},
    {0, "\x89HDF\r\n"sv, "an HDF5 file (Keras?)", "convert it with tf2onnx"},
    {0, "\x93NUMPY"sv, "a NumPy array", ""},
    {0,
     "\x7f"
     "ELF"sv,
     "a compiled program or library", "'stridec inspect' reads libraries that stridec made"},
    {0, "GGUF"sv, "a GGUF model", kExport},
    {0, "\x1f\x8b"sv, "a gzip archive", "unpack it first"},
    {0, "\x28\xb5\x2f\xfd"sv, "a zstd archive", "unpack it first"},
    {0,
     "\xfd"
     "7zXZ"sv,
     "an xz archive", "unpack it first"},
    {0, "BZh"sv, "a bzip2 archive", "unpack it first"},
    {0, "7z\xbc\xaf"sv, "a 7z archive", "unpack it first"},
    {257, "ustar"sv, "a tar archive", "unpack it first"},
    {4, "TFL3"sv, "a TensorFlow Lite model", "convert it with tf2onnx --tflite"},
    {4, "ORTM"sv, "a model in onnxruntime's own format", "use the .onnx file it was made from"},
    {0, "\x80\x02"sv, "a Python pickle (an old torch.save file?)", kExport},
    {0, "\x80\x04\x95"sv, "a Python pickle", kExport},
    {0, "ftrt"sv, "a TensorRT engine", "use the .onnx file it was made from"},
};

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

FileLooks sniff_zip(std::string_view text) {
  const std::string_view head = text.substr(0, 1 << 16);
  const std::string_view tail = text.substr(text.size() - std::min<size_t>(text.size(), 1 << 16));
  const auto names = [&](std::string_view part) { return contains(head, part) || contains(tail, part); };
  if (names("serialized_exported_program") || names("models/model.json") || names("archive_format"))
    return {"a PyTorch exported program (.pt2)", std::string(kExport)};
  if (names("constants.pkl")) return {"a TorchScript archive", std::string(kExport)};
  if (names("data.pkl")) return {"a PyTorch checkpoint (torch.save)", std::string(kExport)};
  if (names(".npy")) return {"a NumPy .npz archive", ""};
  if (names("model.weights.h5")) return {"a Keras model", "convert it with tf2onnx"};
  return {"a zip archive", "unpack it first"};
}

}  // namespace

FileLooks sniff(std::span<const std::byte> file) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  for (const Magic& magic : kMagics)
    if (text.size() >= magic.offset && text.substr(magic.offset).starts_with(magic.bytes))
      return {std::string(magic.what), std::string(magic.help)};
  if (text.starts_with("PK\x03\x04")) return sniff_zip(text);
  if (text.size() > 9 && text[8] == '{' && contains(text.substr(0, 4096), "\"dtype\""))
    return {"a safetensors file: weights without a model", std::string(kExport)};

  const std::string_view start = text.substr(0, 512);
  const std::string_view body =
      start.substr(std::min(start.find_first_not_of(" \t\r\n\xef\xbb\xbf"), start.size()));
  std::string lower(body.substr(0, 64));
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return c < 0x80 ? std::tolower(c) : c; });
  if (lower.starts_with("<!doctype html") || lower.starts_with("<html"))
    return {"a web page (HTML)", "the download gave a page in place of the file; check the address"};
  if (lower.starts_with("<?xml")) return {"an XML file (OpenVINO?)", "use the .onnx file it was made from"};
  if (body.starts_with("<ir_version") || lower.starts_with("< ir_version") || body.starts_with("ir_version:"))
    return {"an ONNX model written as text",
            "save it in binary form: onnx.save(onnx.parser.parse_model(text), path)"};
  if (body.starts_with("{") && contains(start, "\"")) return {"a JSON file", ""};
  if (!text.empty() && std::all_of(start.begin(), start.end(), [](char c) { return c == 0; }))
    return {"nothing but zero bytes", "the download or copy did not finish"};
  if (text.size() >= 16 && std::all_of(start.begin(), start.end(), [](unsigned char c) {
        return c == '\n' || c == '\r' || c == '\t' || (c >= 0x20 && c < 0x7f);
      }))
    return {"a text file", ""};
  return {};
}

}  // namespace stridec::onnx
