/* Trains a small GPT on the bytes of a file, in C: only functions and states of a compiled model.
 *
 *     stridec compile gpt.onnx -o gpt.so \
 *       --train loss=cross_entropy,logits=y,labels=next,optimizer=adamw,lr=input,clip_norm=1
 *     cc -O2 -I <folder of stridec/runtime.h> train_gpt.c -o train_gpt -ldl
 *     ./train_gpt ./gpt.so text.txt 400
 *
 * Prints the loss (in nats a byte; a model that knows nothing has 5.55), that of the last tenth of the file,
 * which is not trained on, and what the model writes by itself.
 */
#include <math.h>

#include "trainer.h"

enum { BATCH = 16, LENGTH = 64, CLASSES = 256, WRITTEN = 200 };

static int64_t tokens[BATCH * LENGTH], next[BATCH * LENGTH];

static unsigned char* read_bytes(const char* path, long* size) {
  FILE* file = fopen(path, "rb");
  if (!file) fail(path, "cannot be opened");
  fseek(file, 0, SEEK_END);
  *size = ftell(file);
  rewind(file);
  unsigned char* text = malloc((size_t)*size);
  if (*size < 20 * LENGTH || fread(text, 1, (size_t)*size, file) != (size_t)*size) fail(path, "is too short");
  fclose(file);
  return text;
}

/* Windows of text[from, to) at random places, and the bytes that follow. */
static void draw(const unsigned char* text, long from, long to) {
  for (int row = 0; row < BATCH; ++row) {
    const unsigned char* at = text + from + pick((unsigned)(to - from - LENGTH));
    for (int i = 0; i < LENGTH; ++i) {
      tokens[row * LENGTH + i] = at[i];
      next[row * LENGTH + i] = at[i + 1];
    }
  }
}

/* The learning rate of a step: a warm-up and a cosine. */
static float rate(int step, int steps) {
  const int warmup = 20;
  if (step < warmup) return 3e-3f * (float)(step + 1) / (float)warmup;
  return 3e-4f + 2.7e-3f * 0.5f * (1 + cosf(3.14159265f * (float)(step - warmup) / (float)(steps - warmup)));
}

static float evaluate(trainer* t, const unsigned char* text, long from, long to) {
  int64_t shape[2] = {BATCH, LENGTH};
  float sum = 0;
  enum { PARTS = 8 };
  for (int part = 0; part < PARTS; ++part) {
    draw(text, from, to);
    stridec_tensor inputs[2] = {tensor(tokens, kInteger, 2, shape), tensor(next, kInteger, 2, shape)};
    stridec_tensor outputs[2];
    run(t, "eval", inputs, 2, outputs, 2);
    sum += scalar(&outputs[0]) / PARTS;
  }
  return sum;
}

/* Goes on from the file's first bytes: each byte is drawn from the model's probabilities, sharpened. */
static void write_text(trainer* t, const unsigned char* text) {
  unsigned char window[LENGTH + WRITTEN];
  int64_t shape[2] = {1, LENGTH};
  memcpy(window, text, LENGTH);
  for (int n = 0; n < WRITTEN; ++n) {
    for (int i = 0; i < LENGTH; ++i) tokens[i] = window[n + i];
    stridec_tensor input = tensor(tokens, kInteger, 2, shape), output;
    run(t, "predict", &input, 1, &output, 1);
    const float* logits = (const float*)output.data + (LENGTH - 1) * CLASSES;
    float shares[CLASSES], total = 0, most = logits[0];
    for (int c = 1; c < CLASSES; ++c) most = logits[c] > most ? logits[c] : most;
    for (int c = 0; c < CLASSES; ++c) total += shares[c] = expf((logits[c] - most) / 0.7f);
    float left = total * (float)pick(1 << 20) / (float)(1 << 20);
    int chosen = 0;
    while (chosen < CLASSES - 1 && (left -= shares[chosen]) > 0) ++chosen;
    window[LENGTH + n] = (unsigned char)chosen;
  }
  printf("it writes: ");
  for (int i = LENGTH; i < LENGTH + WRITTEN; ++i)
    putchar(window[i] >= ' ' && window[i] < 127 ? window[i] : window[i] == '\n' ? ' ' : '?');
  printf("\n");
}

int main(int argc, char** argv) {
  if (argc != 4) fail("usage", "train_gpt gpt.so FILE STEPS");
  trainer t = open_trainer(argv[1]);
  long size;
  unsigned char* text = read_bytes(argv[2], &size);
  const long held = size - size / 10;
  const int steps = atoi(argv[3]);
  int64_t shape[2] = {BATCH, LENGTH};
  const double start = seconds();
  for (int step = 0; step < steps; ++step) {
    draw(text, 0, held);
    float lr = rate(step, steps);
    stridec_tensor inputs[3] = {tensor(tokens, kInteger, 2, shape), tensor(next, kInteger, 2, shape),
                                tensor(&lr, kFloat, 0, NULL)};
    stridec_tensor outputs[2];
    run(&t, "train_step", inputs, 3, outputs, 2);
    if (step == 0 || (step + 1) % 100 == 0)
      printf("step %4d: loss %.3f, gradient norm %.3f, %.1f s\n", step + 1, scalar(&outputs[0]),
             scalar(&outputs[1]), seconds() - start);
  }
  printf("%.0f bytes of text a second\n", (double)steps * BATCH * LENGTH / (seconds() - start));
  printf("held-out loss %.3f\n", evaluate(&t, text, held, size));
  write_text(&t, text);
  free(text);
  close_trainer(&t);
  return 0;
}
