/* Sentence embeddings in C: loads a compiled model, embeds the sentences of a file and prints how similar
 * they are.
 *
 *     cc -O2 -I <folder of stridec/runtime.h> embed.c -o embed -ldl -lm
 *     ./embed minilm.so tokens.txt
 *
 * tokens.txt has one sentence a line: its text, a tab, and its token numbers with spaces between. Tokenising
 * is not the model's work; a script does it beforehand.
 *
 * The model is any encoder in the manner of BERT: int64 inputs of shape [batch, sequence] named input_ids,
 * attention_mask and, if it has them, token_type_ids. Its first output is f32 [batch, width], or [batch,
 * sequence, width]: then a sentence's embedding is the mean of its tokens' rows. Embeddings are scaled to
 * length one and compared by the dot product.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stridec/runtime.h"

enum { MAX_SENTENCES = 64, MAX_TOKENS = 512, MAX_INPUTS = 8 };

typedef struct sentences {
  int count;
  int longest; /* tokens of the longest */
  char* text[MAX_SENTENCES];
  int length[MAX_SENTENCES];
  int64_t tokens[MAX_SENTENCES][MAX_TOKENS];
} sentences;

static int read_sentences(const char* path, sentences* s) {
  FILE* file = fopen(path, "r");
  static char line[1 << 16];
  if (!file) {
    perror(path);
    return 0;
  }
  while (s->count < MAX_SENTENCES && fgets(line, sizeof line, file)) {
    char* tab = strchr(line, '\t');
    if (!tab) continue;
    *tab = 0;
    int n = 0;
    char *at = tab + 1, *end;
    for (; n < MAX_TOKENS; at = end, ++n) {
      s->tokens[s->count][n] = strtoll(at, &end, 10);
      if (end == at) break;
    }
    if (n == 0) continue;
    s->text[s->count] = strcpy(malloc(strlen(line) + 1), line);
    s->length[s->count++] = n;
    if (n > s->longest) s->longest = n;
  }
  fclose(file);
  if (!s->count) fprintf(stderr, "%s: no line holds a text, a tab and token numbers\n", path);
  return s->count > 0;
}

/* Fills one input, [batch, sequence] row by row, by what its name says it means. */
static int fill_input(const char* name, const sentences* s, int64_t* out) {
  int ids = strcmp(name, "input_ids") == 0, mask = strcmp(name, "attention_mask") == 0;
  if (!ids && !mask && strcmp(name, "token_type_ids") != 0) return 0;
  for (int i = 0; i < s->count; ++i)
    for (int t = 0; t < s->longest; ++t) {
      int there = t < s->length[i];
      *out++ = ids ? (there ? s->tokens[i][t] : 0) : mask ? there : 0;
    }
  return 1;
}

/* The mean over a sentence's own tokens (not over the padding), scaled to length one. */
static void pool(const float* rows, int tokens, int64_t width, float* out) {
  double square = 0;
  for (int64_t j = 0; j < width; ++j) {
    double sum = 0;
    for (int t = 0; t < tokens; ++t) sum += rows[t * width + j];
    out[j] = (float)(sum / tokens);
    square += out[j] * out[j];
  }
  for (int64_t j = 0; j < width; ++j) out[j] = (float)(out[j] / sqrt(square));
}

int main(int argc, char** argv) {
  static sentences s;
  char message[512];
  if (argc != 3) {
    fprintf(stderr, "usage: %s model.so tokens.txt\n", argv[0]);
    return 2;
  }
  if (!read_sentences(argv[2], &s)) return 1;

  /* The library exports one function, which answers with the table of all others. */
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  stridec_get_api_fn get_api;
  *(void**)&get_api = dlsym(library, "stridec_get_api");
  const stridec_api* api = get_api ? get_api(STRIDEC_API_VERSION) : NULL;
  if (!api) {
    fprintf(stderr, "%s: not a model of stridec, or one with another version of its API\n", argv[1]);
    return 1;
  }

  /* A model is shared by all threads of a program; each thread that runs it makes a context. */
  stridec_model* model;
  stridec_context* context;
  if (api->model_open(NULL, &model, message, sizeof message) != STRIDEC_OK ||
      api->context_create(model, NULL, &context, message, sizeof message) != STRIDEC_OK) {
    fprintf(stderr, "%s: %s\n", argv[1], message);
    return 1;
  }
  stridec_model_info info = {.struct_size = sizeof info};
  api->model_info(model, &info);
  if (info.input_count > MAX_INPUTS || info.output_count < 1) {
    fprintf(stderr, "%s: not a text encoder: %d inputs, %d outputs\n", argv[1], info.input_count,
            info.output_count);
    return 1;
  }

  /* Tensors have the layout of DLPack's DLTensor and point to the program's own memory. */
  int64_t shape[2] = {s.count, s.longest};
  stridec_tensor inputs[MAX_INPUTS];
  for (int i = 0; i < info.input_count; ++i) {
    stridec_value_info value = {.struct_size = sizeof value};
    api->model_input(model, i, &value);
    int64_t* data = malloc(sizeof(int64_t) * (size_t)s.count * (size_t)s.longest);
    if (!data || !fill_input(value.name, &s, data)) {
      fprintf(stderr, "%s: nothing is known to give to input '%s' %s %s\n", argv[1], value.name,
              value.dtype_name, value.shape);
      return 1;
    }
    inputs[i] = (stridec_tensor){.data = data,
                                 .device = {STRIDEC_DEVICE_CPU, 0},
                                 .ndim = 2,
                                 .dtype = {STRIDEC_DTYPE_INT, 64, 1},
                                 .shape = shape};
  }

  /* Outputs left null are given memory of the context, valid until its next run. */
  stridec_tensor* outputs = calloc((size_t)info.output_count, sizeof *outputs);
  if (api->context_run(context, inputs, (size_t)info.input_count, outputs, (size_t)info.output_count) !=
      STRIDEC_OK) {
    fprintf(stderr, "%s: %s\n", argv[1], api->context_error(context));
    return 1;
  }
  const stridec_tensor* hidden = &outputs[0];
  if ((hidden->ndim != 2 && hidden->ndim != 3) || hidden->dtype.code != STRIDEC_DTYPE_FLOAT ||
      hidden->dtype.bits != 32) {
    fprintf(stderr, "%s: the first output is not f32 [batch, width] or [batch, sequence, width]\n", argv[1]);
    return 1;
  }

  int pooled = hidden->ndim == 2;
  int64_t rows = pooled ? 1 : s.longest, width = hidden->shape[hidden->ndim - 1];
  float* embeddings = malloc(sizeof(float) * (size_t)(s.count * width));
  for (int i = 0; i < s.count; ++i)
    pool((const float*)hidden->data + i * rows * width, pooled ? 1 : s.length[i], width,
         embeddings + i * width);

  for (int i = 0; i < s.count; ++i) printf("%2d  %s\n", i + 1, s.text[i]);
  printf("\n    ");
  for (int j = 0; j < s.count; ++j) printf("%8d", j + 1);
  for (int i = 0; i < s.count; ++i) {
    printf("\n%4d", i + 1);
    for (int j = 0; j < s.count; ++j) {
      double dot = 0;
      for (int64_t k = 0; k < width; ++k)
        dot += (double)embeddings[i * width + k] * embeddings[j * width + k];
      printf("%8.4f", dot);
    }
  }
  printf("\n");

  for (int i = 0; i < info.input_count; ++i) free(inputs[i].data);
  for (int i = 0; i < s.count; ++i) free(s.text[i]);
  free(embeddings);
  free(outputs);
  api->context_destroy(context);
  api->model_close(model);
  dlclose(library);
  return 0;
}
