/* Constant folding as a plug-in:
 *
 *   cc -std=c99 -O2 -shared -fPIC -Iruntime/include samples/extend/fold_constants.c -o fold_constants.so
 *   stridec compile model.onnx --plugin after=import ./fold_constants.so
 *
 * Each line with one result whose operands are constants becomes a constant. The compiler's interpreter
 * computes it, so that any operator is folded. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stridec/plugin.h"

enum { kMostBytes = 1 << 20 };

typedef struct Text {
  char* data;
  size_t size, capacity;
} Text;

static int append(Text* text, const char* more, size_t size) {
  if (text->size + size + 1 > text->capacity) {
    const size_t capacity = 2 * (text->size + size + 1);
    char* data = (char*)realloc(text->data, capacity);
    if (!data) return -1;
    text->data = data, text->capacity = capacity;
  }
  memcpy(text->data + text->size, more, size);
  text->size += size;
  text->data[text->size] = 0;
  return 0;
}

/* The first `what` in the line outside quotes, or NULL. */
static const char* find(const char* line, const char* end, const char* what) {
  const size_t length = strlen(what);
  int quoted = 0;
  for (; line + length <= end; ++line) {
    if (*line == '\\' && quoted) {
      ++line;
      continue;
    }
    if (!quoted && memcmp(line, what, length) == 0) return line;
    if (*line == '"') quoted = !quoted;
  }
  return NULL;
}

/* Whether the operands at the start of `at` are all constants, and there is one. */
static int operands_are_constant(const char* at, const char* end, const unsigned char* constant,
                                 int64_t count) {
  int any = 0;
  while (at + 1 < end && at[0] == ' ' && at[1] == '%') {
    const int64_t number = strtoll(at + 2, (char**)&at, 10);
    if (number < 0 || number >= count || !constant[number]) return 0;
    any = 1;
  }
  return any;
}

/* The line as a constant, if it can be one; 0 if it stays. */
static int fold(const stridec_host* host, stridec_graph* graph, const char* line, const char* end,
                unsigned char* constant, int64_t count, Text* out) {
  if (line[0] != ' ' || line[1] != ' ' || line[2] != '%') return 0; /* a line of the top region */
  char* after = NULL;
  const int64_t number = strtoll(line + 3, &after, 10);
  const char* equals = find(line, end, " = ");
  if (!equals || number >= count || find(line, equals, ", %") || find(line, equals, " $[")) return 0;
  const char* op = equals + 3;
  const char* operands = op + strcspn(op, " \n");
  if (operands - op == 8 && memcmp(op, "constant", 8) == 0) {
    constant[number] = !find(operands, end, " replaceable");
    return 0;
  }
  if (!operands_are_constant(operands, end, constant, count)) return 0;
  const void* bytes = NULL;
  size_t size = 0;
  if (host->evaluate(graph, number, kMostBytes, &bytes, &size) != 0) return 0;
  const char* name = host->add_contents(graph, bytes, size);
  if (!name) return 0;
  constant[number] = 1;
  char contents[160];
  const int length = snprintf(contents, sizeof contents, "constant %zu bytes @%s", size, name);
  const char* origin = find(op, end, " from ");
  if (append(out, line, (size_t)(op - line)) || append(out, contents, (size_t)length)) return 0;
  if (origin && append(out, origin, (size_t)(end - origin))) return 0;
  append(out, "\n", 1);
  return 1;
}

static const char* run(const stridec_host* host, stridec_graph* graph) {
  const char* text = host->text(graph);
  int64_t count = 1; /* at least as many as there are values */
  for (const char* c = text; *c; ++c) count += *c == '%';
  unsigned char* constant = (unsigned char*)calloc((size_t)count, 1);
  if (!constant) return "memory ran out";
  Text out = {0};
  while (*text) {
    const char* end = strchr(text, '\n');
    if (!end) end = text + strlen(text);
    if (!fold(host, graph, text, end, constant, count, &out))
      append(&out, text, (size_t)(end - text) + (*end == '\n'));
    text = end + (*end == '\n');
  }
  const int failed = !out.data || host->set_text(graph, out.data) != 0;
  free(constant);
  free(out.data);
  return failed ? "the text cannot be set" : NULL;
}

const stridec_plugin* stridec_plugin_v1(const stridec_host* host) {
  static const stridec_plugin kPlugin = {sizeof(stridec_plugin), "fold_constants", "1", run};
  return host->struct_size >= sizeof(stridec_host) ? &kPlugin : NULL;
}
