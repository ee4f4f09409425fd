#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes English-Chinese pairs that a small grammar of our own makes: greetings, numbers, days,
months, clock times, prices, families and countries, which texts have too few of to learn from.

    write_phrases.py FOLDER        FOLDER/phrases.tsv, which prepare_en_zh.py mixes in

The same file each time. Sentences of the phrase book that a test holds the translator to are not
among them.
"""

import argparse
import pathlib
import random

from prepare_en_zh import key

PHRASE_BOOK = pathlib.Path(__file__).resolve().parent.parent / "tests/tasks/phrasebook.tsv"
SMALL = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
         "seventeen eighteen nineteen").split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
DIGITS = "零一二三四五六七八九"
DAYS = dict(zip("Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split(), "一二三四五六天"))
MONTHS = ("January February March April May June July August September October November December").split()
PEOPLE = {"Tom": "汤姆", "Mary": "玛丽", "John": "约翰", "Anna": "安娜", "Peter": "彼得", "Lucy": "露西", "David": "大卫",
          "everyone": "大家", "Mr. Wang": "王先生", "Miss Li": "李小姐", "Mom": "妈妈", "Dad": "爸爸",
          "teacher": "老师", "doctor": "医生", "my friend": "我的朋友", "children": "孩子们"}
GREETINGS = {"Good morning": "早上好", "Good afternoon": "下午好", "Good evening": "晚上好", "Good night": "晚安",
             "Hello": "你好", "Hi": "嗨", "Goodbye": "再见", "Bye": "再见", "Thank you": "谢谢", "Thanks": "谢谢",
             "Thank you very much": "非常感谢", "Welcome": "欢迎", "Excuse me": "对不起", "Good luck": "祝你好运",
             "Happy birthday": "生日快乐", "Happy New Year": "新年快乐", "Merry Christmas": "圣诞快乐",
             "See you tomorrow": "明天见", "See you later": "回头见", "Take care": "保重", "Congratulations": "恭喜",
             "I'm sorry": "对不起", "You're welcome": "不客气", "Sweet dreams": "做个好梦"}
# What is counted, one and many, with the word that Chinese counts it by.
THINGS = {"book": ("books", "本书"), "apple": ("apples", "个苹果"), "ticket": ("tickets", "张票"), "cat": ("cats", "只猫"),
          "dog": ("dogs", "只狗"), "room": ("rooms", "个房间"), "car": ("cars", "辆车"), "chair": ("chairs", "把椅子"),
          "student": ("students", "个学生"), "child": ("children", "个孩子"), "brother": ("brothers", "个兄弟"),
          "sister": ("sisters", "个姐妹"), "friend": ("friends", "个朋友"), "cup of tea": ("cups of tea", "杯茶"),
          "cup of coffee": ("cups of coffee", "杯咖啡"), "glass of water": ("glasses of water", "杯水"),
          "bottle of beer": ("bottles of beer", "瓶啤酒"), "egg": ("eggs", "个鸡蛋"), "bird": ("birds", "只鸟"),
          "letter": ("letters", "封信"), "shirt": ("shirts", "件衬衫"), "pair of shoes": ("pairs of shoes", "双鞋"),
          "house": ("houses", "座房子"), "day": ("days", "天"), "year": ("years", "年"), "hour": ("hours", "个小时"),
          "minute": ("minutes", "分钟"), "week": ("weeks", "个星期"), "month": ("months", "个月")}
TIMES = {"day", "year", "hour", "minute", "week", "month"}
COUNTRIES = {"China": ("中国", "Chinese", "中文"), "England": ("英国", "English", "英语"), "France": ("法国", "French", "法语"),
             "Germany": ("德国", "German", "德语"), "Japan": ("日本", "Japanese", "日语"), "Russia": ("俄罗斯", "Russian", "俄语"),
             "Spain": ("西班牙", "Spanish", "西班牙语"), "Italy": ("意大利", "Italian", "意大利语"),
             "Korea": ("韩国", "Korean", "韩语"), "America": ("美国", "English", "英语"), "Canada": ("加拿大", "French", "法语"),
             "Brazil": ("巴西", "Portuguese", "葡萄牙语")}
CITIES = {"Beijing": "北京", "Shanghai": "上海", "London": "伦敦", "Paris": "巴黎", "Tokyo": "东京", "New York": "纽约",
          "Hong Kong": "香港", "Berlin": "柏林", "Guangzhou": "广州", "Rome": "罗马"}
PLACES = {"train station": "火车站", "airport": "机场", "hotel": "酒店", "bank": "银行", "hospital": "医院", "post office": "邮局",
          "restaurant": "餐厅", "toilet": "厕所", "bus stop": "公交车站", "museum": "博物馆", "library": "图书馆",
          "supermarket": "超市", "park": "公园", "school": "学校", "subway station": "地铁站", "police station": "警察局",
          "pharmacy": "药店", "market": "市场", "beach": "海滩", "exit": "出口"}
FAMILY = {"father": "父亲", "mother": "母亲", "older brother": "哥哥", "younger brother": "弟弟", "older sister": "姐姐",
          "younger sister": "妹妹", "son": "儿子", "daughter": "女儿", "wife": "妻子", "husband": "丈夫", "uncle": "叔叔",
          "aunt": "阿姨", "grandfather": "爷爷", "grandmother": "奶奶"}
WORK = {"teacher": "老师", "doctor": "医生", "nurse": "护士", "driver": "司机", "cook": "厨师", "lawyer": "律师", "writer": "作家",
        "singer": "歌手", "police officer": "警察", "student": "学生", "farmer": "农民", "engineer": "工程师"}
FEELINGS = {"happy": "很高兴", "sad": "很伤心", "tired": "很累", "hungry": "饿了", "thirsty": "渴了", "angry": "生气了",
            "afraid": "害怕", "sick": "病了", "busy": "很忙", "bored": "很无聊", "cold": "很冷", "nervous": "很紧张",
            "surprised": "很惊讶", "lonely": "很孤单", "worried": "很担心", "sleepy": "困了"}
SOMEBODY = (("She", "她"), ("He", "他"))
WHO = {"I": ("I'm", "我"), "he": ("He's", "他"), "she": ("She's", "她"), "we": ("We're", "我们"), "they": ("They're", "他们"),
       "you": ("You're", "你")}
FOOD = {"rice": "米饭", "noodles": "面条", "chicken": "鸡肉", "fish": "鱼", "soup": "汤", "bread": "面包", "dumplings": "饺子",
        "fruit": "水果", "beef": "牛肉", "tofu": "豆腐", "cake": "蛋糕", "ice cream": "冰淇淋"}


def in_english(n):
    """0 to 9,999 in words."""
    if n < 20:
        return SMALL[n]
    if n < 100:
        return TENS[n // 10 - 2] + (f"-{SMALL[n % 10]}" if n % 10 else "")
    unit, name = (1000, "thousand") if n >= 1000 else (100, "hundred")
    rest = "" if n % unit == 0 else (" and " if n % unit < 100 else " ") + in_english(n % unit)
    return f"{in_english(n // unit)} {name}{rest}"


def in_chinese(n):
    """0 to 9,999 in characters."""
    if n < 10:
        return DIGITS[n]
    text, missing = "", False
    for unit, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit, n = divmod(n, unit)
        if digit:
            text += ("零" if missing else "") + ("" if unit == 10 and digit == 1 and not text else DIGITS[digit]) + name
        missing = bool(text) and not digit and n > 0
    return text


def count_in_chinese(n):
    return "两" if n == 2 else in_chinese(n)


def clock(hour, minute):
    """How the clock is read, in both languages."""
    chinese = f"{count_in_chinese(hour)}点"
    if minute == 0:
        return f"{SMALL[hour]} o'clock", chinese
    if minute == 30:
        return f"half past {SMALL[hour]}", chinese + "半"
    if minute == 15:
        return f"a quarter past {SMALL[hour]}", chinese + "一刻"
    return f"{SMALL[hour]} {in_english(minute)}", f"{chinese}{in_chinese(minute)}分"


def greetings():
    for english, chinese in GREETINGS.items():
        yield f"{english}!", f"{chinese}！"
        yield f"{english}.", f"{chinese}。"
        for name, called in PEOPLE.items():
            yield f"{english}, {name}.", f"{called}，{chinese}。" if chinese != "欢迎" else f"欢迎你，{called}。"
            yield f"{english}, {name}!", f"{chinese}，{called}！"
    for english, chinese in CITIES.items():
        yield f"Welcome to {english}!", f"欢迎来到{chinese}！"
        yield f"I live in {english}.", f"我住在{chinese}。"
        yield f"I want to go to {english}.", f"我想去{chinese}。"
        yield f"How do I get to {english}?", f"去{chinese}怎么走？"
        yield f"When does the train to {english} leave?", f"去{chinese}的火车什么时候开？"
        yield f"A ticket to {english}, please.", f"请给我一张去{chinese}的票。"
    for english, chinese in PEOPLE.items():
        if english[0].isupper():
            yield f"My name is {english}.", f"我叫{chinese}。"
            yield f"This is {english}.", f"这是{chinese}。"
            yield f"Nice to meet you, {english}.", f"很高兴认识你，{chinese}。"
            yield f"How are you, {english}?", f"{chinese}，你好吗？"


def numbers(draw):
    for n in list(range(0, 101)) + draw.sample(range(101, 1000), 150) + [100 * i for i in range(2, 10)]:
        yield in_english(n).capitalize() + ".", in_chinese(n) + "。"
        yield f"I need {in_english(n)} dollars.", f"我需要{in_chinese(n)}美元。"
        yield f"It costs {in_english(n)} yuan.", f"它{in_chinese(n)}块钱。"
        if 1 < n < 100:
            yield f"I'm {in_english(n)} years old.", f"我{in_chinese(n)}岁。"
            who, called = draw.choice(SOMEBODY)
            yield f"{who} is {in_english(n)}.", f"{called}{in_chinese(n)}岁。"
    for first in range(1, 8):
        run = range(first, first + 3)
        yield ", ".join(map(in_english, run)).capitalize() + ".", "，".join(map(in_chinese, run)) + "。"
    for thing, (many, counted) in THINGS.items():
        for n in list(range(1, 13)) + draw.sample(range(13, 100), 4):
            english = f"{in_english(n)} {thing if n == 1 else many}"
            chinese = count_in_chinese(n) + counted
            if thing in TIMES:
                yield f"I waited for {english}.", f"我等了{chinese}。"
                yield f"It takes {english}.", f"需要{chinese}。"
            else:
                yield f"I have {english}.", f"我有{chinese}。"
                yield f"There {'is' if n == 1 else 'are'} {english} here.", f"这里有{chinese}。"
                who, called = draw.choice(SOMEBODY)
                yield f"{who} wants {english}.", f"{called}想要{chinese}。"
                yield english.capitalize() + ", please.", f"请给我{chinese}。"
        if thing not in TIMES:
            yield f"How many {many} do you have?", f"你有几{counted}？"


def calendar(draw):
    days = list(DAYS)
    for i, day in enumerate(days):
        called, before = f"星期{DAYS[day]}", f"星期{DAYS[days[i - 1]]}"
        yield f"{day}.", f"{called}。"
        yield f"Today is {day}.", f"今天是{called}。"
        yield f"Tomorrow is {day}.", f"明天是{called}。"
        yield f"Yesterday was {day}.", f"昨天是{called}。"
        yield f"It's {day} today.", f"今天{called}。"
        yield f"The day after {days[i - 1]} is {day}.", f"{before}后面是{called}。"
        yield f"I'm free on {day}.", f"我{called}有空。"
        yield f"I'm busy on {day}.", f"我{called}很忙。"
        yield f"See you on {day}.", f"{called}见。"
        yield f"We have no school on {day}.", f"我们{called}不上学。"
        yield f"He comes every {day}.", f"他每个{called}都来。"
        yield f"Let's meet on {day}.", f"我们{called}见面吧。"
        yield f"What are you doing on {day}?", f"你{called}做什么？"
        yield f"The shop is closed on {day}s.", f"商店{called}不开门。"
        yield f"She came last {day}.", f"她上{called}来了。"
        yield f"I'll go next {day}.", f"我下{called}去。"
    for i, month in enumerate(MONTHS, 1):
        called = f"{in_chinese(i)}月"
        yield f"I was born in {month}.", f"我{called}出生。"
        yield f"My birthday is in {month}.", f"我的生日在{called}。"
        yield f"It's cold in {month}.", f"{called}很冷。"
        yield f"We are going to China in {month}.", f"我们{called}去中国。"
        for day in draw.sample(range(1, 29), 6):
            yield f"Today is {month} {day}.", f"今天是{called}{in_chinese(day)}号。"
            yield f"Her birthday is {month} {day}.", f"她的生日是{i}月{day}日。"
    for hour in range(1, 13):
        for minute in (0, 30, 15, draw.choice((5, 10, 20, 25, 40, 50))):
            english, chinese = clock(hour, minute)
            yield f"It's {english}.", f"现在{chinese}。"
            yield f"The train leaves at {english}.", f"火车{chinese}开。"
            yield f"I get up at {english}.", f"我{chinese}起床。"
            yield f"Let's meet at {english}.", f"我们{chinese}见面吧。"
            yield f"Please call me at {english}.", f"请{chinese}给我打电话。"
            yield f"She goes to bed at {english}.", f"她{chinese}睡觉。"


def people():
    for country, (called, language, spoken) in COUNTRIES.items():
        yield f"I'm from {country}.", f"我来自{called}。"
        yield f"She is from {country}.", f"她是{called}人。"
        yield f"Have you ever been to {country}?", f"你去过{called}吗？"
        yield f"I want to visit {country}.", f"我想去{called}看看。"
        yield f"Do you speak {language}?", f"你会说{spoken}吗？"
        yield f"I don't speak {language}.", f"我不会说{spoken}。"
        yield f"I'm learning {language}.", f"我在学{spoken}。"
        yield f"How do you say this in {language}?", f"这个用{spoken}怎么说？"
    for english, chinese in FAMILY.items():
        yield f"This is my {english}.", f"这是我{chinese}。"
        yield f"How old is your {english}?", f"你{chinese}多大了？"
        yield f"I miss my {english}.", f"我想念我的{chinese}。"
        for job, work in WORK.items():
            article = "an" if job[0] in "aeiou" else "a"
            yield f"My {english} is {article} {job}.", f"我{chinese}是{work}。"
            yield f"Is your {english} {article} {job}?", f"你{chinese}是{work}吗？"
    for who, (starts, called) in WHO.items():
        for english, chinese in FEELINGS.items():
            yield f"{starts} {english}.", f"{called}{chinese}。"
            question = {"I": "Am I", "he": "Is he", "she": "Is she"}.get(who, f"Are {who}")
            if who != "I":
                yield f"{question} {english}?", f"{called}{chinese.removeprefix('很')}吗？"


def travel(draw):
    for english, chinese in PLACES.items():
        yield f"Where is the {english}?", f"{chinese}在哪里？"
        yield f"How do I get to the {english}?", f"去{chinese}怎么走？"
        yield f"Is the {english} far from here?", f"{chinese}离这里远吗？"
        yield f"Is there a {english} near here?", f"这附近有{chinese}吗？"
        yield f"The {english} is on the left.", f"{chinese}在左边。"
        yield f"The {english} is on the right.", f"{chinese}在右边。"
        yield f"Please take me to the {english}.", f"请带我去{chinese}。"
        yield f"I'm at the {english}.", f"我在{chinese}。"
    for english, chinese in FOOD.items():
        yield f"I like {english}.", f"我喜欢吃{chinese}。" if english != "soup" else "我喜欢喝汤。"
        yield f"I'd like some {english}.", f"我想要一些{chinese}。"
        yield f"I don't eat {english}.", f"我不吃{chinese}。" if english != "soup" else "我不喝汤。"
        yield f"Do you have {english}?", f"你们有{chinese}吗？"
        yield f"The {english} {'are' if english.endswith('s') else 'is'} delicious.", f"{chinese}很好吃。"
    for thing, (many, counted) in THINGS.items():
        if thing not in TIMES and thing not in {"brother", "sister", "friend", "child", "student"}:
            n = draw.randint(2, 99)
            yield f"How much is this {thing}?", f"这{counted}多少钱？"
            yield f"How much are the {many}?", f"{counted[1:]}多少钱？"
            yield f"I want to buy a{'n' if thing[0] in 'aeiou' else ''} {thing}.", f"我想买一{counted}。"
            yield f"This {thing} is too expensive.", f"这{counted}太贵了。"
            yield f"{many.capitalize()} cost {in_english(n)} yuan.", f"{counted[1:]}{in_chinese(n)}块钱。"


def all_pairs():
    draw = random.Random(1)
    for part in (greetings(), numbers(draw), calendar(draw), people(), travel(draw)):
        yield from part


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    book = {key(side) for line in PHRASE_BOOK.read_text(encoding="utf-8").splitlines() for side in line.split("\t")[::2]}
    pairs = dict.fromkeys(pair for pair in all_pairs() if not book & set(map(key, pair)))
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / "phrases.tsv"
    out.write_text("".join(f"{english}\t{chinese}\n" for english, chinese in pairs), encoding="utf-8", newline="\n")
    print(f"{out}: {len(pairs)} lines")


if __name__ == "__main__":
    main()
