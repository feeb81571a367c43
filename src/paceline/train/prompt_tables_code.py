"""Programming tasks: what to write, in which language, on which data, under which conditions."""

from __future__ import annotations

from paceline.train.prompt_grammar import entries

LANGUAGE = entries("""Python | Python | Python | Python | JavaScript | TypeScript | Java | C | C++ | Go |
Rust | Ruby | C# | Kotlin | Swift | PHP | Bash | Haskell""")
TASK = entries("""reverses the words of a sentence | checks whether a string is a palindrome | merges two
sorted lists | finds the second largest number | counts the vowels in a text | removes duplicates and
keeps the order | converts a Roman numeral to an integer | rotates a list by k places | flattens a nested
list | checks whether brackets are balanced | computes the nth Fibonacci number | finds all prime numbers
below n | computes the greatest common divisor | transposes a matrix | multiplies two matrices | finds the
longest common prefix | groups words that are anagrams | compresses a string by run lengths | validates an
e-mail address | parses a date such as 2024-03-01 | formats a number with thousands separators | computes
a moving average | finds the median of two sorted lists | returns the k most frequent words | searches a
sorted list by bisection | sorts a list by merge sort | sorts a list by quicksort | sorts records by two
keys | builds a binary search tree | traverses a tree level by level | finds the shortest path in a grid |
detects a cycle in a graph | orders tasks by their dependencies | counts islands in a grid of zeros and
ones | computes the edit distance of two words | finds the longest increasing subsequence | solves the
knapsack problem | makes change with the fewest coins | lists all permutations | lists all subsets of a
set | solves the eight queens puzzle | checks a sudoku board | plays tic-tac-toe | simulates the game of
life | prints Pascal's triangle | converts between binary and decimal | converts Celsius to Fahrenheit |
computes the day of the week of a date | checks whether a year is a leap year | encrypts a text with the
Caesar cipher | computes a checksum | encodes a text in Base64 | reads a CSV file and sums a column |
counts lines, words and characters of a file | finds the largest files in a folder | renames all photos in
a folder by date | finds duplicate files by hash | replaces a word in every file of a folder | parses a
log file and counts errors per hour | downloads a page and lists its links | reads JSON and prints one
field | converts JSON to CSV | merges several CSV files | generates a random password | shuffles a deck of
cards | rolls dice and draws a histogram as text | estimates pi by random points | finds two numbers that
add up to a target | finds the subarray with the largest sum | moves all zeros to the end | finds the
missing number from 1 to n | finds the first character that does not repeat | checks whether two strings
are isomorphic | adds two numbers given as linked lists | reverses a linked list | finds the middle of a
linked list | implements a least-recently-used cache | implements a stack with a minimum | implements a
queue with two stacks | implements a priority queue | implements a trie | implements a hash table |
implements a rate limiter | implements a retry with growing delays | implements an event emitter |
implements a bank account with deposits and withdrawals | implements a simple calculator with parentheses
| parses arithmetic expressions | evaluates postfix notation | tokenises a small language | formats a
table as text | wraps text at a given width | prints a calendar month | measures the time of a function |
memoises a function | runs jobs in parallel and collects the results | implements a producer and a
consumer | splits a list into chunks | zips lists of unequal length | deep-copies a nested structure |
compares two version numbers | converts snake case to camel case | slugifies a title | masks a credit card
number | extracts hashtags from a post | computes compound interest | splits a bill fairly | computes a
tax by brackets | converts between time zones | finds overlapping intervals | merges intervals | schedules
meeting rooms | computes the distance between two points on Earth | checks whether a point lies in a
polygon | computes the area of a polygon""")
CONDITION = entries("""Do not use any library. | Explain the time complexity. | Add type hints and a
docstring. | Handle invalid input. | Include {2..4} unit tests. | Use recursion. | Do it without
recursion. | Keep it under {10..30} lines. | Comment every step. | Show an example call and its output. |
It should run in linear time. | Use constant extra space. | Raise an error for empty input. | Give two
versions and compare them. | Then explain how it works. | Make it work for very large inputs. | Return
only the code.""")
APP = entries("""a to-do list | a weather page with fake data | a quiz with {3..8} questions | a stopwatch
| a currency converter | a memory game | a chat client | a guest book | a recipe collection | a bookmark
manager | a calculator | a typing test | a URL shortener | a photo gallery | a login form | a budget
planner | a flashcard trainer | a countdown to a date | a drawing canvas | a snake game | a poll | a music
playlist | a markdown editor | a contact form | a library catalogue""")
STACK = entries("""plain HTML and JavaScript | HTML, CSS and JavaScript | React | Flask | FastAPI | Django
| Node.js and Express | tkinter | a command-line program in Python | a command-line program in Go | Vue |
a single HTML file""")
ENTITY = entries("""customers and orders | students and courses | books and loans | flights and passengers
| films and ratings | employees and departments | patients and appointments | songs and albums | players
and matches | products and reviews | sensors and measurements | authors and articles""")
QUERY = entries("""the {3..10} entries with the highest count | those without any partner in the other
table | the monthly totals | the average per group, largest first | duplicates | the most recent row per
group | a running total | the share of each group in percent | all rows of the last {7..90} days | pairs
that occur together more than {2..20} times""")
CONCEPT = entries("""recursion | closures | decorators | generators | pointers | garbage collection |
inheritance and composition | interfaces | polymorphism | immutability | threads and processes | deadlocks
| race conditions | promises | async and await | REST | GraphQL | unit tests | mocking | continuous
integration | Docker containers | Git rebase and merge | SQL joins | indexes in databases | transactions |
normal forms | big-O notation | hash collisions | memory leaks | stack and heap | unicode and encodings |
regular expressions | dependency injection | the observer pattern | the factory pattern | the singleton
pattern | functional programming | lazy evaluation | type inference | generics | exceptions |
floating-point errors | caching | load balancing | message queues | microservices | CORS | cookies and
sessions | OAuth | SQL injection | cross-site scripting | list comprehensions | context managers | virtual
environments | linting | code review | semantic versioning | binary trees | heaps | breadth-first search |
dynamic programming | greedy algorithms""")
BUG = entries("""def mean(xs):¶→total = 0¶→for x in xs:¶→→total = x¶→return total / len(xs) | def
add(item, items=[]):¶ →items.append(item)¶→return items | for i in range(len(xs)):¶→if xs[i] <
{0..9}:¶→→xs.remove(xs[i]) | def is_even(n):¶ →return n % 2 == 1 | def last(xs):¶→return xs[len(xs)] |
total = 0¶while total < {5..50}:¶→print(total) | def area(r):¶ →return 3.14 * r ^ 2 | funcs = [lambda: i
for i in range({3..9})]¶print([f() for f in funcs]) | def find(xs, y):¶→for i, x in enumerate(xs):¶→→if x
== y:¶→→→return i¶→→else:¶→→→return -1 | name = input()¶if name == "Ann" or "Bob":¶→print("hello") | def
count(text):¶→counts = dict()¶→for c in text:¶→→counts[c] += 1¶→return counts | with open("data.txt") as
f:¶→pass¶ print(f.read()) | x = "{1..9}" + {1..9}¶print(x) | def fib(n):¶→return fib(n - 1) + fib(n -
{1..3}) | def first_words(lines):¶ →return [line.split()[{1..3}] for line in lines] | prices = [{1..9}.5,
{10..20}.0, {3..8}.25]¶for p in prices:¶→p = p * 1.{10..25}¶ print(prices) | words = "a b c".split("
")¶words = words.sort()¶print(words[{0..2}]) | def power(b, e):¶→result = 0¶→for _ in range(e):¶→→result
*= b¶→return result | try:¶→n = int("{2..9}x")¶except:¶→pass¶print(n)""")
PATTERN = entries("""German postcodes | times such as 09:45 | hexadecimal colours | IPv4 addresses | words
in capitals | numbers with two decimals | quoted strings | HTML tags | phone numbers with a country code |
repeated words | file names that end in .csv | prices in euros | dates such as 03/12/2021 | lines that
start with a comment sign | email addresses of one domain""")
SHELL = entries("""list the {3..20} largest files under a folder | find all files changed in the last
{2..30} days | count the lines of all {language} files | kill the process that listens on port
{3000..9000} | show disk usage per folder | back up a folder every night | replace spaces in file names by
underscores | extract the {2..6}th column of a log file | resize all images in a folder | watch a file and
run a command when it changes | compare two folders | print the lines that two files have in common""")
SHAPE = entries("""Vehicle | Invoice | Playlist | Matrix | Inventory | Temperature | Polynomial | Graph |
Timer | Parser | Account | Deck | Library | Elevator | Fraction | Logger | Shape | ParkingLot | Thermostat
| VendingMachine | Queue | Calendar""")
SORT = entries("""list of integers | list of strings | list of dictionaries | nested list | text file |
JSON document | stream of numbers | matrix | dictionary of lists | linked list | large log file | set of
tuples""")

CODE = entries("""Write a {language} function that {task}. | Write a {language} function that {task}.
{condition} | Write a {language} program that {task}. {condition} | Implement in {language} a solution
that {task}, then describe the edge cases. | How would you write code in {language} that {task}?
{condition} | Create {app} with {stack}. | Create {app} with {stack}. {condition} | Write an SQL schema
for {entity}, and a query that returns {query}. | Given tables of {entity}, write an SQL query that finds
{query}. | Explain {concept} with a short example in {language}. | What is the difference between
{concept} and {concept}? Use code where it helps. | Explain {concept} to a beginner in {3..6} sentences. |
What is wrong with this Python code, and how would you fix it?¶¶```python¶{bug}¶``` | What does this code
print or do? Explain line by line.¶¶```python¶ {bug}¶``` | Write a regular expression that matches
{pattern}, and explain each part. | Write a {language} function that finds {pattern} in a text.
{condition} | Write a shell command or a short Bash script to {shell}. | Design a class `{shape}` in
{language} with {3..6} methods. {condition} | Write a Python class `{shape}` that works with `{shape}`
objects. Use dataclasses. | Write pytest tests for a function that {task}. | Translate this idea into
{language} and {language}: a function that {task}. | Describe an algorithm that {task}, then code it in
{language}. {condition} | Refactor a long function that {task} into small parts. Show the result in
{language}. | Write a generator in Python that lazily yields the items of a {sort}, one at a time, and use
it. {condition} | What are the best practices for {concept} in {language}? | Write a Dockerfile and a
short README for {app} built with {stack}. | Write pseudocode that {task}, and give its complexity. |
Write a command-line tool in Python with argparse that {task}. {condition} | Which data structure would
you use for {app}, and why? Sketch the code in {language}. | Write a REST API in {stack} for {entity}.""")

TABLES = {name.lower(): table for name, table in list(globals().items()) if isinstance(table, tuple)}
