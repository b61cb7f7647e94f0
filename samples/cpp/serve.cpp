// Several requests at once: every thread runs one shared model in a context of its own, at its own batch
// size.
//
//     c++ -std=c++17 -O2 -pthread -I <folder of stridec/runtime.h> serve.cpp -o serve -ldl
//     ./serve model.so [threads] [requests] [dim=value ...]
//
// It works with any model whose inputs are numbers: it makes up inputs (zeros) for shapes where each named
// dim has the value given, or the least that the artifact serves, and prints how many requests a second were
// answered.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <sstream>
#include <thread>

#include "stridec.hpp"

namespace {

// The value of a dim's text, "768" or a name; compound expressions belong to outputs.
int64_t dim_value(const std::string& text, const std::map<std::string, int64_t>& symbols) {
  auto found = symbols.find(text);
  return found != symbols.end() ? found->second : std::strtoll(text.c_str(), nullptr, 10);
}

// "[batch, 768]" to its dims.
std::vector<int64_t> shape_value(const std::string& text, const std::map<std::string, int64_t>& symbols) {
  std::vector<int64_t> shape;
  std::istringstream dims(text.substr(1, text.size() - 2));
  for (std::string dim; std::getline(dims >> std::ws, dim, ',');) shape.push_back(dim_value(dim, symbols));
  return shape;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s model.so [threads] [requests] [dim=value ...]\n", argv[0]);
    return 2;
  }
  stridec::Model model(argv[1]);
  int threads = argc > 2 ? std::atoi(argv[2]) : 2, requests = argc > 3 ? std::atoi(argv[3]) : 100;
  stridec_model_info info = model.info();
  std::map<std::string, int64_t> symbols;
  for (int32_t i = 0; i < info.symbol_count; ++i) {
    stridec_symbol_info symbol{};
    symbol.struct_size = sizeof symbol;
    model.api().model_symbol(model.handle(), i, &symbol);
    symbols[symbol.name] = symbol.minimum > 1 ? symbol.minimum : 1;
  }
  for (int i = 4; i < argc; ++i) {
    std::string setting = argv[i];
    size_t equals = setting.find('=');
    if (equals != std::string::npos)
      symbols[setting.substr(0, equals)] = std::atoll(setting.c_str() + equals + 1);
  }

  auto answer = [&] {
    // One thread a request: many small requests are served best when they do not share processors.
    stridec_context_options options{};
    options.struct_size = sizeof options;
    options.threads = 1;
    stridec::Context context(model, &options);
    std::vector<std::vector<int64_t>> memory;  // eight zero bytes an element are zero in any type
    std::vector<stridec_tensor> inputs;
    std::vector<std::vector<int64_t>> shapes;
    for (int32_t i = 0; i < info.input_count; ++i)
      shapes.push_back(shape_value(model.input(i).shape, symbols));
    for (int32_t i = 0; i < info.input_count; ++i) {
      size_t n = 1;
      for (int64_t d : shapes[i]) n *= static_cast<size_t>(d);
      memory.emplace_back(n ? n : 1);
      inputs.push_back({memory.back().data(),
                        {STRIDEC_DEVICE_CPU, 0},
                        static_cast<int32_t>(shapes[i].size()),
                        model.input(i).dtype,
                        shapes[i].data(),
                        nullptr,
                        0});
    }
    std::vector<stridec_tensor> outputs(static_cast<size_t>(info.output_count));
    context.warm_up(inputs);  // the first request is answered as fast as the others
    for (int i = 0; i < requests; ++i) {
      for (stridec_tensor& t : outputs) t = {};
      context.run_c(inputs, outputs);
    }
  };
  auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> pool;
  std::vector<std::string> failures(static_cast<size_t>(threads));
  for (int t = 0; t < threads; ++t)
    pool.emplace_back([&, t] {
      try {
        answer();
      } catch (const std::exception& e) {
        failures[static_cast<size_t>(t)] = e.what();
      }
    });
  for (std::thread& t : pool) t.join();
  for (const std::string& failure : failures)
    if (!failure.empty()) throw std::runtime_error(failure);
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("%s (%s): %d requests on %d threads, %.1f a second\n", info.name, info.variant,
              threads * requests, threads, threads * requests / seconds);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
