"""What `test_trainer.py` runs: `training.py FOLDER STEPS [resume]` prints `steps N` when it has trained so far."""

import sys
from pathlib import Path

from datasets import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertTokenizerFast,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    set_seed,
)

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "bad", "film", "book"]


def main(folder, steps, resume):
    set_seed(0)
    tokenizer = tokenizer_in(folder)
    trainer = Trainer(
        model=BertForSequenceClassification(small(len(WORDS))),
        args=arguments(folder, steps),
        train_dataset=sentences(tokenizer),
        tokenizer=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer),
    )
    trainer.train(resume_from_checkpoint=resume)
    print("steps", trainer.state.global_step)


def tokenizer_in(folder):
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(WORDS))
    return BertTokenizerFast(str(vocabulary))


def small(words):
    return BertConfig(vocab_size=words, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128)


def sentences(tokenizer):
    rows = [{"text": f"a {word} {thing}", "label": int(word == "good")} for word in ("good", "bad") for thing in ("film", "book")]
    return Dataset.from_list(rows * 16).map(lambda row: tokenizer(row["text"]), remove_columns=["text"])


def arguments(folder, steps):
    return TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        save_steps=10,
        logging_steps=5,
        per_device_train_batch_size=8,
        dataloader_num_workers=2,
        bf16=True,
        report_to=[],
        disable_tqdm=True,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), "resume" in sys.argv[3:])
