/* Trains a residual network on images made in place, in C: circles, squares, crosses and stripes in noise.
 * Saves its states, and shows that a second context that starts from them has the same next loss.
 *
 *     stridec compile resnet.onnx -o resnet.so \
 *       --train loss=cross_entropy,logits=y,labels=class,optimizer=sgd,momentum=0.9,lr=0.03
 *     cc -O2 -I <folder of stridec/runtime.h> train_resnet.c -o train_resnet -ldl
 *     ./train_resnet ./resnet.so 80 resnet.states
 */
#include "trainer.h"

enum { BATCH = 16, SIDE = 24, CLASSES = 4, TESTED = 16 };

static float images[BATCH * 3 * SIDE * SIDE];
static int64_t classes[BATCH];

static int inside(int kind, int x, int y, int size) {
  const int ax = x < 0 ? -x : x, ay = y < 0 ? -y : y;
  switch (kind) {
    case 0: return x * x + y * y <= size * size;
    case 1: return ax <= size && ay <= size && (ax > size - 2 || ay > size - 2);
    case 2: return (ax <= 1 || ay <= 1) && ax <= size && ay <= size;
    default: return ax <= size && ay <= size && (y & 2);
  }
}

static void draw(void) {
  for (int n = 0; n < BATCH; ++n) {
    const int kind = (int)pick(CLASSES), size = 4 + (int)pick(5);
    const int cx = size + (int)pick((unsigned)(SIDE - 2 * size));
    const int cy = size + (int)pick((unsigned)(SIDE - 2 * size));
    classes[n] = kind;
    for (int c = 0; c < 3; ++c) {
      const float level = 0.5f + (float)pick(100) / 100;
      for (int y = 0; y < SIDE; ++y)
        for (int x = 0; x < SIDE; ++x)
          images[((n * 3 + c) * SIDE + y) * SIDE + x] =
              (float)inside(kind, x - cx, y - cy, size) * level + (float)pick(1000) / 1000 - 0.5f;
    }
  }
}

static float step(trainer* t) {
  int64_t image_shape[4] = {BATCH, 3, SIDE, SIDE}, class_shape[1] = {BATCH};
  stridec_tensor inputs[2], outputs[2];
  inputs[0] = tensor(images, kFloat, 4, image_shape);
  inputs[1] = tensor(classes, kInteger, 1, class_shape);
  run(t, "train_step", inputs, 2, outputs, 2);
  return scalar(&outputs[0]);
}

static int right_ones(trainer* t) {
  int64_t shape[4] = {BATCH, 3, SIDE, SIDE};
  int right = 0;
  for (int part = 0; part < TESTED; ++part) {
    draw();
    stridec_tensor input = tensor(images, kFloat, 4, shape), output;
    run(t, "predict", &input, 1, &output, 1);
    for (int n = 0; n < BATCH; ++n) {
      const float* scores = (const float*)output.data + n * CLASSES;
      int best = 0;
      for (int c = 1; c < CLASSES; ++c)
        if (scores[c] > scores[best]) best = c;
      right += best == classes[n];
    }
  }
  return right;
}

int main(int argc, char** argv) {
  if (argc != 4) fail("usage", "train_resnet resnet.so STEPS FILE");
  trainer t = open_trainer(argv[1]);
  const int steps = atoi(argv[2]);
  const double start = seconds();
  for (int i = 0; i < steps; ++i) {
    draw();
    const float loss = step(&t);
    if (i == 0 || (i + 1) % 20 == 0) printf("step %3d: loss %.3f, %.1f s\n", i + 1, loss, seconds() - start);
  }
  printf("%.0f images a second\n", (double)steps * BATCH / (seconds() - start));
  printf("wrong %.3f of new images\n", 1 - (double)right_ones(&t) / (TESTED * BATCH));

  copy_states(&t, argv[3], 0);
  trainer second = open_trainer(argv[1]);
  copy_states(&second, argv[3], 1);
  draw();
  const float first = step(&t), again = step(&second);
  printf("the next loss %.6f, from the saved states %.6f\n", first, again);
  close_trainer(&second);
  close_trainer(&t);
  return first == again ? 0 : 1;
}
