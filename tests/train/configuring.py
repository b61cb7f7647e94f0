"""What a user of `--train-config` sees: the settings of --train in a JSON file."""

import json
import pathlib

import jsonschema

from command import CASES

SCHEMA = pathlib.Path(__file__).resolve().parents[2] / "schemas" / "train.schema.json"
SETTINGS = {
    "loss": "cross_entropy", "logits": "y", "labels": "t", "label_smoothing": 0.1, "optimizer": "sgd", "momentum": 0.9, "nesterov": True,
    "lr": "cosine(3e-4, total=99)", "clip_norm": 1, "freeze": ["second.b*", "first.weight"], "functions": ["train_step", "predict"],
    "group": [{"match": ["*.bias", "*norm*"], "weight_decay": 0, "lr_scale": 0.5}, {"match": "first.bias", "weight_decay": 0.25}],
}  # fmt: skip
TEXT = ("loss=cross_entropy,logits=y,labels=t,label_smoothing=0.1,optimizer=sgd,momentum=0.9,nesterov=1,lr=cosine(3e-4, total=99),"
        "clip_norm=1,freeze=second.b*|first.weight,functions=train_step+predict,group=*.bias|*norm*(weight_decay=0,lr_scale=0.5),"
        "group=first.bias(weight_decay=0.25)")  # fmt: skip


def compiled_settings(c, name, *flags):
    c.works(name, "compile", CASES / "mlp.onnx", "-o", "c.so", "-q", *flags)
    return json.loads((c.work / "c.json").read_text())["options"]["train"]


def write(c, settings):
    (c.work / "train.json").write_text(json.dumps(settings))


def same_as_flags(c):
    write(c, SETTINGS)
    from_file = compiled_settings(c, "file", "--train-config", "train.json")
    c.expect("the same settings", from_file == compiled_settings(c, "flags", "--train", TEXT), from_file)
    replaced = compiled_settings(c, "replaced", "--train-config", "train.json", "--train", "momentum=0.5,lr=1")
    want = from_file.replace("momentum=0.9", "momentum=0.5").replace("lr=cosine(3e-4, total=99)", "lr=1")
    c.expect("flags replace", replaced == want, replaced)
    c.works("check", "check", CASES / "mlp.onnx", "--train-config", "train.json")


def refuse(c):
    for name, change, code, sentence in (
        ("misspelt", {"momentun": 1}, 1, "did you mean 'momentum'?"),
        ("kind", {"lr": {"rate": 1}}, 1, "'lr' is neither a text nor a number"),
        ("comma", {"logits": "y,lr=3"}, 1, "which has a comma"),
        ("group", {"group": [{"weight_decay": 0}]}, 1, "'group' has no 'match'"),
        ("another loss's", {"delta": 1}, 1, "has a setting 'delta'"),
    ):
        write(c, {**SETTINGS, **change})
        c.refused(name, code, sentence, "compile", CASES / "mlp.onnx", "-o", "r.so", "--train-config", "train.json")
    for text in ("[]", "{", ""):
        (c.work / "train.json").write_text(text)
        c.refused(f"file {text!r}", 3, "not a JSON object", "compile", CASES / "mlp.onnx", "-o", "r.so", "--train-config", "train.json")
    c.refused("no file", 2, "absent.json", "compile", CASES / "mlp.onnx", "-o", "r.so", "--train-config", "absent.json")


def schema_is_complete(c):
    """It has the settings of every loss and optimizer, and those that every training has."""
    schema = json.loads(c.works("schema", "schema", "train"))
    c.expect("the file", schema == json.loads(SCHEMA.read_text()))
    jsonschema.validate(SETTINGS, schema)
    names = {"$schema"}
    for table in ("losses", "optimizers"):
        for row in json.loads(c.works(table, table, "--format=json")):
            names |= {setting.partition("=")[0] for setting in row["settings"].split()}
    code, out, error = c.run("compile", CASES / "mlp.onnx", "-o", "r.so", "--train", "loss=mse,output=y,target=t,none=1")
    names |= set(error.partition("every training has ")[2].splitlines()[0].split(", "))
    c.expect("the settings", set(schema["properties"]) == names, str(set(schema["properties"]) ^ names))


def check(c):
    for test in (same_as_flags, refuse, schema_is_complete):
        test(c)
