#include "compiler/codegen/cuda/nvrtc.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"

namespace stridec::codegen::cuda {
namespace fs = std::filesystem;

// The used part of nvrtc.h; the interface is unchanged since CUDA 11.2 (NVRTC documentation).
struct Nvrtc::Functions {
  using Program = void*;
  int (*version)(int* major, int* minor);
  int (*architecture_count)(int* count);
  int (*architectures)(int* list);
  int (*create)(Program*, const char* text, const char* name, int headers, const char* const*,
                const char* const*);
  int (*destroy)(Program*);
  int (*compile)(Program, int count, const char* const* options);
  int (*log_size)(Program, size_t*);
  int (*log)(Program, char*);
  int (*cubin_size)(Program, size_t*);
  int (*cubin)(Program, char*);
  int (*ptx_size)(Program, size_t*);
  int (*ptx)(Program, char*);
};

namespace {

constexpr const char* kNames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

// Folders in which CUDA's installers and wheels put the library.
std::vector<std::string> usual_folders() {
  std::vector<std::string> out;
  auto add = [&](const std::string& folder) {
    for (const char* sub : {"", "/lib64", "/lib", "/targets/x86_64-linux/lib"}) {
      std::error_code error;
      if (fs::is_directory(folder + sub, error)) out.push_back(folder + sub);
    }
  };
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* value = std::getenv(variable)) add(value);
  add("/usr/local/cuda");
  std::vector<std::string> versions;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/usr/local", error))
    if (entry.path().filename().string().starts_with("cuda-")) versions.push_back(entry.path().string());
  std::sort(versions.rbegin(), versions.rend());
  for (const std::string& version : versions) add(version);
  // The folders of pip install nvidia-cuda-nvrtc: in the active environment, and in the one that .ci/setup
  // makes.
  std::vector<std::string> environments;
  if (const char* environment = std::getenv("VIRTUAL_ENV")) environments.push_back(environment);
  const char* cache = std::getenv("STRIDEC_CACHE");
  const char* home = std::getenv("HOME");
  if (cache && *cache)
    environments.push_back(std::string(cache) + "/python");
  else if (home && *home)
    environments.push_back(std::string(home) + "/.cache/stridec/python");
  for (const std::string& environment : environments)
    for (const auto& entry : fs::directory_iterator(environment + "/lib", error))
      for (const char* package : {"cu13", "cuda_nvrtc"})
        add(entry.path().string() + "/site-packages/nvidia/" + package);
  return out;
}

}  // namespace

Nvrtc::Nvrtc(const std::string& given) {
  std::string path = given;
  if (const char* variable = std::getenv("STRIDEC_NVRTC"); path.empty() && variable) path = variable;
  std::vector<std::string> tried;
  auto attempt = [&](const std::string& candidate) {
    if (library_) return;
    library_ = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_)
      path_ = candidate;
    else
      tried.push_back(candidate);
  };
  auto attempt_folder = [&](const std::string& folder) {
    for (const char* name : kNames) {
      std::error_code error;
      if (fs::exists(folder + "/" + name, error)) attempt(folder + "/" + name);
    }
  };
  std::error_code error;
  if (!path.empty() && fs::is_directory(path, error))
    attempt_folder(path);
  else if (!path.empty())
    attempt(path);
  if (path.empty()) {
    for (const char* name : kNames) attempt(name);
    for (const std::string& folder : usual_folders()) attempt_folder(folder);
  }
  if (!library_)
    fail(ErrorKind::kToolchain, "no-nvrtc",
         path.empty() ? cat("NVRTC, which builds GPU kernels, is not on this machine (looked for ",
                            join(tried, ", "), ")")
                      : cat("'", path, "' is not a NVRTC library that can be loaded"),
         "pip install nvidia-cuda-nvrtc, or name the library of a CUDA toolkit: --nvrtc "
         "/path/to/libnvrtc.so.13");
  functions_ = new Functions;
  bool complete = true;
  auto get = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library_, name));
    complete = complete && function;
  };
  get(functions_->version, "nvrtcVersion");
  get(functions_->architecture_count, "nvrtcGetNumSupportedArchs");
  get(functions_->architectures, "nvrtcGetSupportedArchs");
  get(functions_->create, "nvrtcCreateProgram");
  get(functions_->destroy, "nvrtcDestroyProgram");
  get(functions_->compile, "nvrtcCompileProgram");
  get(functions_->log_size, "nvrtcGetProgramLogSize");
  get(functions_->log, "nvrtcGetProgramLog");
  get(functions_->cubin_size, "nvrtcGetCUBINSize");
  get(functions_->cubin, "nvrtcGetCUBIN");
  get(functions_->ptx_size, "nvrtcGetPTXSize");
  get(functions_->ptx, "nvrtcGetPTX");
  if (!complete)
    fail(ErrorKind::kToolchain, "no-nvrtc",
         cat("'", path_, "' is not NVRTC of CUDA 12 or newer: functions of its interface are missing"));
  int minor = 0, count = 0;
  functions_->version(&major_, &minor);
  version_ = cat(major_, ".", minor);
  // NVRTC loads this library by its name alone, so the loader finds it only in its own folders, unless it is
  // loaded already. If it is elsewhere, the attempt fails and NVRTC says what it looked for.
  if (const fs::path folder = fs::path(path_).parent_path(); !folder.empty())
    (void)dlopen((folder / cat("libnvrtc-builtins.so.", version_)).c_str(), RTLD_NOW | RTLD_LOCAL);
  functions_->architecture_count(&count);
  architectures_.resize(static_cast<size_t>(count));
  functions_->architectures(architectures_.data());
}

Nvrtc::~Nvrtc() { delete functions_; }  // the library stays loaded: unloading it is unreliable

bool Nvrtc::supports(const GpuTarget& target) const {
  return std::find(architectures_.begin(), architectures_.end(), target.capability) != architectures_.end();
}

std::string Nvrtc::compile(const std::string& name, const std::string& text, const GpuTarget& target) const {
  if (!supports(target))
    fail(ErrorKind::kToolchain, "nvrtc-architecture",
         cat("NVRTC ", version_, " does not know ", target.name, "; it has ",
             join(architectures_, ", ", [](int a) { return cat("sm_", a); })),
         "name a newer library with --nvrtc, or leave this architecture out of --gpu");
  Functions::Program program = nullptr;
  if (functions_->create(&program, text.c_str(), name.c_str(), 0, nullptr, nullptr))
    fail(ErrorKind::kToolchain, "nvrtc", cat("NVRTC ", version_, " took no program"));
  const std::string architecture = cat("--gpu-architecture=", target.ptx ? "compute_80" : target.name);
  const char* options[] = {architecture.c_str(), "--std=c++20", "--device-as-default-execution-space", "-w"};
  const int status = functions_->compile(program, static_cast<int>(std::size(options)), options);
  std::string out;
  if (status) {
    size_t size = 0;
    functions_->log_size(program, &size);
    std::string log(size, '\0');
    if (size) functions_->log(program, log.data());
    log.resize(log.find('\0') == std::string::npos ? size : log.find('\0'));
    functions_->destroy(&program);
    fail(ErrorKind::kToolchain, "nvrtc",
         cat("NVRTC ", version_, " refuses ", name, " for ", target.name, ":\n", log));
  }
  size_t size = 0;
  (target.ptx ? functions_->ptx_size : functions_->cubin_size)(program, &size);
  out.resize(size);
  (target.ptx ? functions_->ptx : functions_->cubin)(program, out.data());
  functions_->destroy(&program);
  return out;
}

}  // namespace stridec::codegen::cuda
