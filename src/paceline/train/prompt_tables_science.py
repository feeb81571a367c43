"""Topics of the natural sciences, engineering and the humanities, with templates that ask about them."""

from __future__ import annotations

from paceline.train.prompt_grammar import entries

STEM_TOPIC = entries("""plate tectonics | the greenhouse effect | the double-slit experiment | natural
selection | the Krebs cycle | public-key cryptography | black holes | neural networks | the water cycle |
antibiotics resistance | enzymes | Newton's laws of motion | the periodic table | entropy | DNA
replication | the immune system | semiconductors | Fourier series | prime numbers | the Doppler effect |
catalysts | cell division | ocean currents | the human heart | vaccines | superconductivity | radioactive
decay | the Higgs boson | Bayes' theorem | hash functions | lithium-ion batteries | nuclear fusion | the
carbon cycle | mitochondria | gravitational waves | eigenvalues | operating systems | the speed of light |
acids and bases | osmosis | volcanoes | earthquakes | tides | lasers | the ozone layer | stem cells |
CRISPR | the electromagnetic spectrum | heat pumps | wind turbines | compilers | relational databases |
the TCP handshake | machine translation | reinforcement learning | gradient descent | the placebo effect |
the blood-brain barrier | the nitrogen cycle | hormones | insulin | dark matter | the life cycle of stars
| exoplanets | comets | the Coriolis effect | friction | surface tension | buoyancy | resonance | optics
of the eye | sound waves | polymers | chemical equilibrium | oxidation and reduction | isotopes | ionic
and covalent bonds | crystals | chaos theory | game theory | graph colouring | the halting problem |
sorting algorithms | binary search trees | virtual memory | caching | blockchain | quantum entanglement |
quantum computing | special relativity | the photoelectric effect | magnetism | transformers in electrical
grids | electric motors | jet engines | bridges | reinforced concrete | 3D printing | GPS | radar | MRI
scanners | X-rays | fibre optics | satellites | the tree of life | symbiosis | food webs | coral reefs |
invasive species | migration of birds | pollination | fungi | viruses | bacteria | fermentation | the
human microbiome | muscles | sleep | memory in the brain | neurons | vision | hearing | kidneys | the
lungs | digestion | genetics of eye colour | dominant and recessive genes | speciation | fossils | ice
ages | glaciers | soil erosion | deserts | hurricanes | clouds | lightning | the seasons | eclipses | the
phases of the moon | Mars | Saturn's rings | rockets | orbits | significance tests | the normal
distribution | correlation and causation | linear regression | matrices | derivatives | integrals |
logarithms | complex numbers | the golden ratio | proof by induction | Pythagoras' theorem | infinity |
probability | error-correcting codes | data compression | encryption | version control | recursion | the
internet of things | computer graphics | robotics | water purification | desalination | recycling of
plastics | geothermal energy | hydropower | biofuels | fertilisers | pasteurisation | refrigerators |
microwaves | touch screens | LEDs | solar cells | transistors | analogue and digital signals""")

PHENOMENON = entries("""the sky is blue | ice floats on water | metals conduct electricity | leaves change
colour in autumn | we get goosebumps | bread rises | the sea is salty | cats purr | planes can fly |
onions make us cry | stars twinkle | soap removes grease | a spinning top stays upright | hot air rises |
iron rusts | we dream | bees dance | mirrors reverse left and right | popcorn pops | moss grows on stones
| batteries run down | honey does not spoil | rainbows are curved | we hiccup | salt melts ice | rivers
meander | a ball bounces | geckos climb glass""")

BODY = entries("""a whale | the human brain | a coral | a mosquito | an octopus | a cactus | a bat | a
honey bee | a penguin | a mushroom | an oak tree | a camel | a salmon | a spider | an elephant | a
tardigrade | a snake | a frog""")

MACHINE = entries("""a refrigerator | a bicycle gear | a hard disk | a steam engine | a microphone | an
electric car | a nuclear reactor | a search engine | a spell checker | a pressure cooker | a camera | a
heat pump | a lock | a clock | a vacuum cleaner | a printer | a smoke detector | a barcode scanner | a
lift | a parachute | a telescope""")

STEM = entries("""Explain {stem_topic}{style} | What is the role of {stem_topic} in everyday
life?{style_s} | How does {machine} work?{style_s} | Why is it that {phenomenon}?{style_s} | What are the
main ideas behind {stem_topic}?{style_s} | Compare {stem_topic} and {stem_topic}. What do they have in
common? | Describe an experiment that demonstrates {stem_topic}. | What are common misconceptions about
{stem_topic}?{style_s} | Explain {stem_topic} to a {10..17}-year-old student{style} | Give a short history
of {stem_topic}{style} | What problems do scientists still have with {stem_topic}?{style_s} | How is
{stem_topic} used in medicine or industry?{style_s} | Which mathematical ideas are needed to understand
{stem_topic}?{style_s} | Write {3..7} exam questions about {stem_topic}, with answers. | How has {body}
adapted to its environment?{style_s} | What would happen if {body} were twice as large? Explain with
physics. | Estimate how much energy {machine} uses in a year. Show your assumptions. | How would you
design a better version of {machine}?{style_s} | Define {stem_topic} in one sentence, then explain it in a
paragraph. | I am a student preparing for a test. Summarise {stem_topic}{style} | Which discoveries made
{stem_topic} possible?{style_s} | List the key terms one needs for {stem_topic} and define each of them. |
Derive or justify the most important formula connected with {stem_topic}. | What are the advantages and
disadvantages of {machine}?{style_s} | Describe the structure of {body} and how its parts work together.""")

HUMAN_TOPIC = entries("""the French Revolution | the Silk Road | the Renaissance | the fall of the Roman
Empire | the Industrial Revolution | the Cold War | the abolition of slavery | the Enlightenment |
Stoicism | utilitarianism | the social contract | existentialism | Impressionism | Baroque music | the
Bauhaus | Greek tragedy | the Black Death | the Magna Carta | women's suffrage | the Great Depression |
the Marshall Plan | decolonisation | the space race | the printing press | Gothic architecture | the
Ottoman Empire | the Meiji Restoration | the Han dynasty | ancient Egypt | the Inca Empire | the Crusades
| the Reformation | the Hanseatic League | the Treaty of Versailles | the Berlin Wall | the European Union
| the United Nations | inflation | supply and demand | central banks | free trade | minimum wages |
unemployment | taxation | monopolies | behavioural economics | globalisation | urbanisation | migration |
nationalism | federalism | separation of powers | electoral systems | constitutional courts | human rights
| freedom of the press | propaganda | cultural relativism | Confucianism | Buddhism | Sufism | Judaism |
the Protestant work ethic | the philosophy of Kant | Plato's cave | Aristotle's ethics | Descartes' method
| Nietzsche's idea of the superman | free will | the mind-body problem | the trolley problem | justice |
civil disobedience | feminism | postmodernism | Romantic poetry | the novel as a form | Shakespeare's
comedies | Homer's Odyssey | Dante's Inferno | magical realism | the Harlem Renaissance | jazz | opera |
folk music | silent film | photography as art | surrealism | cubism | Japanese woodblock prints |
calligraphy | the origins of writing | language change | language acquisition | dialects | Esperanto |
sign languages | rhetoric | myths of creation | rites of passage | kinship | social class | education
systems | the welfare state | public health in history | the history of money | the gold standard | piracy
| the transatlantic slave trade | the Mongol Empire | the Vikings | the Byzantine Empire | the American
Civil War | the Russian Revolution | the Spanish Civil War | apartheid | the Indian independence movement
| the Cuban Missile Crisis | the Suez Canal | the Great Wall of China | the Library of Alexandria |
archaeology at Pompeii | the Rosetta Stone | cave paintings | museums and looted art | copyright |
consumer culture | advertising | the history of sport | the Olympic Games | cooking and identity | fashion
and class | tourism | cities and power | memory and monuments | oral history""")

CHANGE = entries("""shape modern society | affect ordinary people | change the relations between men and
women | influence literature and art | contribute to economic growth | alter the balance of power | spread
beyond its place of origin | come to an end | meet resistance | change the way people thought""")

LENS = entries("""economic | political | religious | cultural | technological | social | legal | moral""")

HUMANITIES = entries("""Discuss {human_topic}{style} | How did {human_topic} {change}?{style_s} | What
were the {lens} and {lens} aspects of {human_topic}?{style_s} | Compare {human_topic} with {human_topic}.
| Give arguments for and against the view that {human_topic} is overrated. | Explain the importance of
{human_topic} to a visitor in a museum. | Write a short essay on {human_topic}{style} | What would a
critic say about {human_topic}, and how would you answer? | Give {3..6} examples that illustrate
{human_topic}. | What can we learn from {human_topic} today?{style_s} | Describe the origins of
{human_topic}{style} | How do historians disagree about {human_topic}?{style_s} | Prepare a lesson plan of
{30..90} minutes about {human_topic} for a class of {12..28} pupils. | Which books should one read about
{human_topic}, and why? | Explain {human_topic} in the words of a child, then in the words of a professor.
| What is the {lens} significance of {human_topic}?{style_s} | Create a timeline of {human_topic} with
{4..8} entries. | How is {human_topic} taught in schools, and how should it be?{style_s} | Explain how
{human_topic} and {human_topic} are connected. | Write a debate between two scholars about {human_topic}.
| Name the most influential persons connected with {human_topic} and say what each of them did. | Is
{human_topic} still relevant? Take a position and defend it.""")

# After an imperative, and after a question that already has its mark.
STYLE = entries(""". | . | . | in {3..6} sentences. | in bullet points. | step by step. | with an example.
| in simple words. | , and give two examples. | in fewer than {80..200} words. | using an analogy. | ,
then name {2..4} open questions. | as a numbered list. | in plain language, without jargon. | in one
paragraph. | and end with a short summary.""")
STYLE_S = entries("""{none} | {none} | {none} | Answer in {2..5} sentences. | Use bullet points. | Explain
step by step. | Give a concrete example. | Keep it under {60..180} words. | Use an analogy. | Answer as
briefly as you can. | Give reasons. | Include at least {2..4} examples.""")

TABLES = {name.lower(): table for name, table in list(globals().items()) if isinstance(table, tuple)} | {
    "none": ("",),
    "style": tuple(s if s[0] in ".," else f" {s}" for s in STYLE),
    "style_s": tuple(s if s == "{none}" else f" {s}" for s in STYLE_S),
}
